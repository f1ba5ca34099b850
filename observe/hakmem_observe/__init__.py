"""Tools that look into a living process that runs on hakmem (docs/observability.md).

processes   what /proc says of a process, in sentences where it says no
observer    the file through which a process answers (src/observe/observer.h)
attach      starts the observer of a process that was started without one
stat        one report
observe     attaches, and nothing else
"""
