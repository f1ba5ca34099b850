# SPDX-License-Identifier: MIT
"""Tools that look into a living process that runs on hakmem (docs/observability/README.md).

processes   what /proc says of a process, in sentences where it says no
output      what becomes of output that cannot be written
observer    the file through which a process answers (src/observe/observer.h)
attach      starts the observer of a process that was started without one
report      figures, and what became of them
stat        one report
top         reports on a screen or as text; view says what of them
metrics     reports for Prometheus; watched says of which processes, serving is the server, served_profiles their profiles
observe     attaches, and nothing else
profile     call stacks; profile_data reads them, symbols names them, profile_names keeps names, pprof and profile_page write them
binaries    which file names a module's code, by its build id; elf reads one
inlined     where addr2line names inlined functions wrongly, and what it leaves out
guard_names the functions of a report of the guard, for `run`
heap        the page of a heap map; heap_map reads one
"""
