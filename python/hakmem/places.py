# SPDX-License-Identifier: MIT
"""Places to write to that are the caller's own, whose paths LD_PRELOAD can hold (no spaces, colons or dollars)."""
import os
import pwd
import re
import stat
import tempfile
import zlib
from pathlib import Path


def can_preload(path):
    return str(path).startswith("/") and not re.search(r"[\s:$]", str(path))


def is_own(path):
    """Only root and the caller can write to it, or put another one in its place. It need not exist yet."""
    path = Path(os.path.realpath(path))
    for place in (path, *path.parents):
        try:
            about = os.lstat(place)
        except OSError:
            continue
        if about.st_uid not in (0, os.geteuid()):
            return False
        # In a sticky folder such as /tmp, others cannot replace what is ours.
        if not about.st_mode & 0o022 or (about.st_mode & stat.S_ISVTX and place != path):
            continue
        # Many users have a group of their own, and let it write.
        if about.st_mode & 0o002 or about.st_gid not in (0, os.getegid()):
            return False
    return True


def leave_out_homes():
    """Settings and caches are the caller's own: `sudo -E` keeps another user's HOME."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        if os.environ.get(name) and not is_own(os.environ[name]):
            os.environ[name] = ""
    if not os.environ.get("HOME"):
        try:
            os.environ["HOME"] = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            os.environ["HOME"] = "/"


def make_folder(place):
    """The folder, if it can be written."""
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return place if os.access(place, os.W_OK) else None


def cache_directory():
    leave_out_homes()
    for place in (os.environ.get("XDG_CACHE_HOME"), os.environ["HOME"] + "/.cache"):
        place = Path(place or "") / "hakmem"
        if can_preload(place) and is_own(place) and make_folder(place):
            return place
    name = f"hakmem-{os.geteuid()}"
    place = Path(os.environ.get("TMPDIR") or "/tmp") / name
    if not (can_preload(place) and is_own(place)):
        place = Path("/tmp") / name
    try:
        place.mkdir(mode=0o700)
    except OSError:
        pass
    # Somebody else's directory of that name is not to be trusted.
    if not place.is_dir() or place.is_symlink() or not is_own(place):
        place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=place.parent))
    return place


def own_cache(kind, root):
    """A folder for this checkout or installation in the cache."""
    place = cache_directory() / f"{kind}-{zlib.crc32(os.fsencode(root)):08x}"
    place.mkdir(exist_ok=True)
    return place


def is_ours(directory, root):
    """It belongs to the caller, to root or to the owner of the launcher, and not everybody may write to it."""
    about = os.stat(directory)
    return not about.st_mode & 0o002 and about.st_uid in (0, os.geteuid(), os.stat(root / "hakmem").st_uid)


def build_directory(root):
    """Where presets are built: build/ of the checkout, or the cache when that cannot be written or preloaded from."""
    build = root / "build"
    if can_preload(root) and make_folder(build) and is_ours(build, root):
        return build
    return own_cache("build", root)
