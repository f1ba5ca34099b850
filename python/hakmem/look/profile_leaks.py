# SPDX-License-Identifier: MIT
"""What ./hakmem profile prints of leaks, and of programs that run others."""
import os
from collections import Counter

from .figures import in_words
from .owners import is_of_library, own_frame
from .profile import SUSPECT_MOMENTS, counted, print_site, sites_of, title

SHELLS = ("sh", "bash", "dash", "ash", "busybox", "ksh", "mksh", "zsh")
OTHERS_NAMED = 3  # programs in the line for all others
PATHS_SHOWN = 5  # of a site
PATH_FRAMES = 4  # callers in the line of a path


def program_of(profile):
    return os.path.basename(profile.program)


def in_order(profiles, pid, measure):
    """Those to show, and those of other programs. The last to show is that of the process `pid`, which was started; or the
    one with most, if no process is given, or if it is a shell that runs the program. All of a file are shown."""
    ranked = sorted(profiles, key=lambda profile: profile.total(measure))
    own = next((profile for profile in ranked if profile.pid == pid and program_of(profile) not in SHELLS), ranked[-1])
    shown = [profile for profile in ranked if profile is not own and (pid is None or profile.program == own.program)]
    return [*shown, own], [profile for profile in reversed(ranked) if profile is not own and profile not in shown]


def others_in_words(profiles, measure, what):
    """One line."""
    names = Counter(map(program_of, profiles)).most_common()
    words = [name + (f" {count} times" if count > 1 else "") for name, count in names[:OTHERS_NAMED]]
    more = f" and {counted(len(names) - OTHERS_NAMED, 'other')}" if len(names) > OTHERS_NAMED else ""
    held = in_words(sum(profile.total(measure) for profile in profiles))
    return (f"{counted(len(profiles), 'process').replace('processs', 'processes')} of other programs ({', '.join(words)}{more}): about "
            f"{held} {what}; -o FILE keeps them, and profile FILE shows each")


def path_of(stack):
    """The functions of the program that lead to the site, as far as they fit into a line."""
    frames = list(stack.frames)
    own = own_frame(frames)
    callers = [frame for frame in (frames[frames.index(own) + 1:] if own in frames else ()) if not is_of_library(frame)]
    named = [frame.label() + (f":{frame.line}" if frame.line else "") for frame in callers[:PATH_FRAMES]]
    return ", ".join(named + ["..."] * (len(callers) > PATH_FRAMES))


def print_paths(site):
    """A line for each way to the site, if there are several."""
    paths = Counter()
    for stack in site.stacks:
        paths[path_of(stack)] += stack.sums["live_bytes"]
    found = [(path, held) for path, held in paths.most_common() if held > 0]
    for path, held in found[:PATHS_SHOWN] if len(found) > 1 else ():
        print(f"{'':22}{in_words(held)} by {path or 'no other function'}")
    if len(found) > PATHS_SHOWN:
        print(f"{'':22}and {in_words(sum(held for _, held in found[PATHS_SHOWN:]))} by {counted(len(found) - PATHS_SHOWN, 'more path')}")


def print_suspects(suspects, arguments, total):
    print("\nSuspects: these sites grew all through the run.")
    for site in suspects[:arguments.sites]:
        print_site(site, "live_bytes", "live_count", total, True)
        print(f"{'':22}over time: " + ", ".join(in_words(held) for held in site.history[-5:] if held)
              + f", {arguments.when} {in_words(site.total('live_bytes'))}")


def print_leaks(profile, arguments):
    sites = sites_of(profile, "live_bytes")
    total = profile.total("live_bytes")
    print(f"{title(profile)}: about {in_words(total)} not freed {arguments.when}; estimated from "
          f"{counted(profile.total('samples_live'), 'sample')}")
    suspects = [site for site in sites if site.only_grows()]
    rest = [site for site in sites if site not in suspects]
    if suspects:
        print_suspects(suspects, arguments, total)
    if rest and suspects:
        print("\nNot freed either, but not growing all through the run:")
    elif rest and all(len(site.moments()) < SUSPECT_MOMENTS for site in rest):
        print("\nNot freed; the run was too short to say which of these grow:")
    elif rest:
        print("\nNot freed; none of these grew all through the run:")
    for site in rest[:arguments.sites]:
        print_site(site, "live_bytes", "live_count", total, arguments.stacks)
        if not arguments.stacks:
            print_paths(site)
