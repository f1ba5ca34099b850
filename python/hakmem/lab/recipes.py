# SPDX-License-Identifier: MIT
"""The other allocators: where each comes from, and how it becomes a library to preload.

Everything that is built lands in one folder of the cache, and only ever whole: under a name of its
own first, then renamed. So a killed installation leaves nothing that could be taken for finished.

Each is built the way its authors build a release: their own build system where the crate has it
(jemalloc, snmalloc), else their flags. Names are exact, because they are easily confused: "google
tcmalloc" and "gperftools" are two libraries that both call themselves tcmalloc.
"""

import hashlib
import inspect
import json
import os
import platform
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

from .base import ROOT, Problem, cache_directory
from .measure import clean_environment

UNPRELOADABLE = re.compile(r"[\s:$]")
"""What LD_PRELOAD cannot hold: it separates by spaces and colons and expands dollars."""

BUILD_SETTINGS = {"CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS", "CARGO_MAKEFLAGS"}
"""Variables of the caller that would change a build without being recorded."""

PACKAGES = {"cc": "gcc", "c++": "g++"}
"""The Debian package of a command, where it has another name."""

COMMAND_LIMIT_S = 900


def peers_directory() -> Path:
    return cache_directory() / "peers"


def check_preloadable(path: Path | str) -> None:
    found = UNPRELOADABLE.search(str(path))
    if found:
        what = {":": "a colon", "$": "a dollar sign"}.get(found.group(), "a space")
        raise Problem(f"LD_PRELOAD cannot hold the path '{path}', because there is {what} in it; use a folder without "
                      "spaces, colons and dollar signs")


def build_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment without what steers allocators and compilers; messages in C.

    mimalloc prints when it was built: with a fixed date the same source gives the same library.
    """
    kept = {k: v for k, v in clean_environment().items() if k not in BUILD_SETTINGS}
    return kept | {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"} | dict(extra or {})


@dataclass
class Workshop:
    """Where one peer is made: its log, its folder, and whom to tell how far it is."""

    log: Path
    folder: Path
    jobs: int = 1
    tell: Callable[[str], None] = field(default=lambda step: None)
    advance: Callable[[float], None] = field(default=lambda part: None)

    def run(
        self, command: Sequence[str | Path], directory: Path | None = None,
        environment: Mapping[str, str] | None = None, limit_s: float = COMMAND_LIMIT_S,
    ) -> str:
        """Runs a command to its end, returns and logs its output; a failure is a Problem."""
        words = [str(word) for word in command]
        output, status = _run_in_group(words, directory, build_environment(environment), limit_s)
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(words)}\n{output}[{status}]\n")
        if status is None:
            raise Problem(f"{words[0]} did not end within {limit_s:.0f} s (log: {self.log})")
        if status != 0:
            raise Problem(f"{Path(words[0]).name} failed: {reason_in(output)} (log: {self.log})")
        return output


def _run_in_group(
    words: list[str], directory: Path | None, environment: dict[str, str], limit_s: float
) -> tuple[str, int | None]:
    """A group of its own, so that what make or cargo started ends with them."""
    try:
        process = subprocess.Popen(words, cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   start_new_session=True)
    except OSError as error:
        raise Problem(f"{words[0]} cannot be run: {error.strerror}") from error
    try:
        output, _ = process.communicate(timeout=limit_s)
        return output, process.returncode
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return output, None
        raise


def reason_in(output: str) -> str:
    """The line of a failed command's output that says most: the last that speaks of an error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"\berror\b|cannot|could not|^E:", line, re.I)]
    return (telling or lines or ["it said nothing"])[-1][:200]


def need(workshop: Workshop, command: str) -> str:
    """The path of a command; installs its Debian package when it is missing."""
    if shutil.which(command) is None:
        install_packages(workshop, PACKAGES.get(command, command))
    return shutil.which(command) or command


def install_packages(workshop: Workshop, *packages: str) -> None:
    """As root on Debian and Ubuntu with --install; else a Problem that says what to type."""
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise Problem(f"{names} is missing; install it with the system's package manager")
    if os.geteuid() != 0:
        raise Problem(f"{names} is missing; type: sudo apt-get install -y {names}")
    if os.environ.get("LABORATORY_INSTALL") != "yes":
        raise Problem(f"{names} is missing; type: apt-get install -y {names}")
    workshop.tell(f"apt-get install {names}")
    # It goes on after its caller has been ended: a dpkg must not stop halfway.
    workshop.run([ROOT / "tools" / "install_packages.sh", *packages])


def find_cargo(workshop: Workshop) -> str:
    """cargo from PATH or rustup's folder, else Debian's: cargo-web is the current one there."""
    home = os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo")
    found = shutil.which("cargo") or shutil.which("cargo", path=f"{home}/bin")
    if found is None:
        try:
            install_packages(workshop, "cargo-web")
        except Problem:
            install_packages(workshop, "cargo")
        found = shutil.which("cargo")
    if found is None:
        raise Problem("cargo is missing")
    return found


@dataclass(frozen=True)
class Crate:
    """A package of crates.io that carries an allocator's source."""

    name: str
    version: str
    checksum: str  # SHA-256 of the .crate file, as in Cargo.lock

    def __str__(self) -> str:
        return f"crate {self.name} {self.version}"


def crate_sources(workshop: Workshop, crate: Crate) -> Path:
    """The unpacked crate, fetched by cargo (so by the machine's own settings) unless it is here."""
    sources = peers_directory() / "sources"
    target = sources / f"{crate.name}-{crate.version}"
    if target.is_dir():
        return target
    cargo = find_cargo(workshop)
    workshop.tell(f"cargo vendor {crate.name}")
    project = workshop.folder / "fetch"
    (project / "src").mkdir(parents=True)
    (project / "src" / "lib.rs").touch()
    (project / "Cargo.toml").write_text(
        '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2018"\n[workspace]\n'
        f'[dependencies]\n{crate.name} = {{ version = "={crate.version}" }}\n'
    )
    # By itself, vendor would pass by the mirror that the machine's settings may name.
    options = ["--versioned-dirs", "--respect-source-config"]
    workshop.run([cargo, "vendor", *options, "vendor"], project, limit_s=300)
    found = [*(project / "vendor").glob(f"{crate.name}-{crate.version}*")]
    if len(found) != 1:
        raise Problem(f"cargo did not deliver {crate}")
    said = json.loads((found[0] / ".cargo-checksum.json").read_text())["package"]
    if said != crate.checksum:
        raise Problem(f"{crate} is not the one this was written for: its checksum is {said}")
    sources.mkdir(parents=True, exist_ok=True)
    found[0].rename(target)
    return target


def crate_commit(sources: Path) -> str:
    """The commit of the crate's own repository, as its packer recorded it; "" if not."""
    try:
        return json.loads((sources / ".cargo_vcs_info.json").read_text())["git"]["sha1"]
    except (OSError, ValueError, KeyError):
        return ""


# ---- The recipes. ----

MIMALLOC = Crate("libmimalloc-sys", "0.1.49", "6a45a52f43e1c16f667ccfe4dd8c85b7f7c204fd5e3bf46c5b0db9a5c3c0b8e9")
JEMALLOC = Crate("tikv-jemalloc-sys", "0.7.1", "1a2825c78386b4ae0314074867860ba9577875de945f05992c38815cbec327f0")
TCMALLOC = Crate("libtcmalloc-sys", "0.1.14", "33e204268a3b09862788a2894346c768b95b2cb29cba42c5e2bb9ea7f48fa317")
SNMALLOC = Crate("snmalloc-sys", "0.7.6", "f09c93c55f9a2b8dab75738a83c771231c5f408af65b8657433fe5bc93cc76cb")
RPMALLOC = Crate("rpmalloc-sys", "0.2.3", "8d4b7d5e225a53887ee57fcec492eaf114b8e290f7072d035adc6ddd6810b67b")
HARDENED_MALLOC = Crate("hardened-malloc-sys", "16.0.2026071503",
                        "8a634cdd17eb2cea9e8ab0977f9b7401a5882db9fadb594d080bc67f230b6ec2")

CLANG = "clang-19"
"""Preferred for C++ peers: snmalloc is 5 to 10 % faster with it than with gcc 12."""

TCMALLOC_EXPORTS = """{ global:
  malloc; free; calloc; realloc; reallocarray; memalign; aligned_alloc; posix_memalign; valloc;
  pvalloc; cfree; free_sized; free_aligned_sized; malloc_usable_size; malloc_stats; malloc_trim;
  mallopt; mallinfo; mallinfo2; malloc_info; sdallocx; nallocx; __libc_*; __posix_memalign;
  _Zn[wa]*; _Zd[la]*; tc_*; MallocExtension_Internal_*; TCMalloc_Internal_*;
local: *; };
"""
"""So that calls inside the library need no detour, as when it is linked the usual, static way."""


@dataclass(frozen=True)
class Built:
    """What a recipe delivers."""

    library: Path
    version: str = ""  # where the recipe cannot know it: a Debian package's
    compiler: str = ""
    flags: str = ""


@dataclass(frozen=True)
class Recipe:
    key: str  # the short name on the command line
    name: str  # as tables show it
    version: str  # "" if the package says it
    origin: Crate | str  # "Debian NAME" when it is a package
    build: FunctionType  # (Workshop, Path of the sources, *more) -> Built
    more: tuple[str, ...] = ()
    seconds: float = 5.0  # on two cores; only for the time left
    is_default: bool = True  # part of `bench` unless the user says otherwise
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Changes when the recipe does, so that the library is made anew."""
        text = f"{self.origin}{self.version}{self.environment}{self.more}{_source_of(self.build)}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def make(self, workshop: Workshop) -> tuple[Built, str]:
        """Fetches, builds; also the commit of the source's repository."""
        if not isinstance(self.origin, Crate):
            return self.build(workshop, Path(), *self.more), ""
        sources = crate_sources(workshop, self.origin)
        workshop.tell("building")
        return self.build(workshop, sources, *self.more), crate_commit(sources)


def _source_of(function: FunctionType) -> str:
    """Its text and that of the functions and strings of this module it uses."""
    parts = [inspect.getsource(function)]
    for name in function.__code__.co_names:
        used = globals().get(name)
        if inspect.isfunction(used) and used.__module__ == __name__:
            parts.append(_source_of(used))
        elif isinstance(used, str):
            parts.append(used)
    return "".join(parts)


def compiler_version(workshop: Workshop, compiler: str) -> str:
    """The first line of --version, by the real name: plain cc does not say which it is."""
    program = os.path.realpath(shutil.which(compiler) or compiler)
    return workshop.run([program, "--version"]).splitlines()[0].strip()


def cxx_compiler(workshop: Workshop) -> str:
    """The preferred clang, else the newest of the machine, else its C++ compiler."""
    try:
        need(workshop, CLANG)
    except Problem:
        pass  # other distributions have others
    numbered = [f"clang++-{number}" for number in range(30, 14, -1)]
    for name in [CLANG.replace("clang", "clang++"), *numbered, "clang++"]:
        if shutil.which(name):
            return name
    return need(workshop, "c++")


def build_unit(workshop: Workshop, library: str, flags: str, *words: str | Path) -> Built:
    """A shared library of one C file."""
    compiler = need(workshop, "cc")
    workshop.run([compiler, *flags.split(), "-shared", *words, "-o", workshop.folder / library])
    return Built(workshop.folder / library, compiler=compiler_version(workshop, compiler), flags=flags)


def build_mimalloc(workshop: Workshop, sources: Path, series: str, form: str = "") -> Built:
    """The flags of its CMakeLists.txt (the crate lacks CMake's other files), in one unit. `form` is
    a definition more."""
    flags = (
        "-std=gnu11 -O3 -DNDEBUG -fPIC -fvisibility=hidden -ftls-model=initial-exec"
        " -fno-builtin-malloc -DMI_MALLOC_OVERRIDE -DMI_SHARED_LIB -DMI_SHARED_LIB_EXPORT"
        " -DMI_BUILD_RELEASE -DMI_CMAKE_BUILD_TYPE=release -pthread"
    )
    flags += form and f" {form}"
    source = sources / "c_src" / "mimalloc" / series
    return build_unit(workshop, "libmimalloc.so", flags, f"-I{source / 'include'}", source / "src" / "static.c")


def build_jemalloc(workshop: Workshop, sources: Path) -> Built:
    """Its own configure and make, all defaults; the crate keeps configure in another folder."""
    compiler, make = need(workshop, "cc"), need(workshop, "make")
    tree = workshop.folder / "jemalloc"
    nameless = f"-ffile-prefix-map={tree}=."  # the same library wherever it is built
    settings = {"CC": compiler, "CXX": need(workshop, "c++"), "EXTRA_CFLAGS": nameless, "EXTRA_CXXFLAGS": nameless}
    shutil.copytree(sources / "jemalloc", tree)
    shutil.copy(sources / "configure" / "configure", tree / "configure")
    version = re.search(r'^version = ".*?\+(.*)"', (sources / "Cargo.toml").read_text(), re.M)
    options = [f"--with-version={version[1] if version else 'VERSION'}", "--disable-static"]
    workshop.run(["sh", "configure", *options, "--disable-doc"], tree, settings)
    workshop.advance(0.4)
    said = workshop.run([make, f"-j{workshop.jobs}", "build_lib_shared"], tree)
    library = tree / "lib" / "libjemalloc.so.2"
    shutil.copy(library, workshop.folder / "libjemalloc.so")
    known = r" (-O\d|-funroll-loops|-fvisibility=\w+|-fPIC)\b"
    flags = " ".join(sorted(set(re.findall(known, said))))
    return Built(workshop.folder / "libjemalloc.so", compiler=compiler_version(workshop, compiler),
                 flags=f"configure {' '.join(options)}: {flags}")


def build_tcmalloc(workshop: Workshop, sources: Path) -> Built:
    """The files the crate's build.rs lists, but with the overrides of libc that it turns off."""
    compiler = cxx_compiler(workshop)
    flags = "-std=c++17 -O3 -DNDEBUG -fPIC -ftls-model=initial-exec -fno-omit-frame-pointer"
    listed = re.findall(r'"(c_src/[^"]+\.(?:cc|S))"', (sources / "build.rs").read_text())
    files = [name for name in listed if "bridge" not in name]
    files.append("c_src/tcmalloc/tcmalloc/tcmalloc.cc")  # in place of the bridge that includes it
    include = [f"-I{sources / 'c_src' / name}" for name in ("abseil-cpp", "tcmalloc")]

    def compile_one(name: str) -> Path:
        target = workshop.folder / (name.replace("/", "_") + ".o")
        workshop.run([compiler, *flags.split(), "-w", *include, "-c", sources / name, "-o", target])
        workshop.advance(1 / len(files))
        return target

    with ThreadPoolExecutor(workshop.jobs) as pool:
        try:
            objects = list(pool.map(compile_one, files))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    exports = workshop.folder / "exports"
    exports.write_text(TCMALLOC_EXPORTS)
    library = workshop.folder / "libtcmalloc.so"
    link = ["-shared", f"-Wl,--version-script={exports}", "-pthread", "-o", library]
    workshop.run([compiler, *link, *objects])
    return Built(library, compiler=compiler_version(workshop, compiler), flags=flags)


def build_snmalloc(workshop: Workshop, sources: Path, target: str) -> Built:
    cmake, compiler = need(workshop, "cmake"), cxx_compiler(workshop)
    need(workshop, "make")
    tree = workshop.folder / "build"
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DSNMALLOC_BUILD_TESTING=OFF"]
    workshop.run([cmake, "-G", "Unix Makefiles", "-S", sources / "upstream", "-B", tree, *options,
                  f"-DCMAKE_CXX_COMPILER={compiler}"])
    workshop.run([cmake, "--build", tree, "-j", str(workshop.jobs), "--target", target])
    used = (tree / "CMakeFiles" / f"{target}.dir" / "flags.make").read_text()
    flags = " ".join(re.findall(r"(?<= )-[^DWI]\S*", used.partition("CXX_FLAGS =")[2]))
    return Built(tree / f"lib{target}.so", compiler=compiler_version(workshop, compiler),
                 flags=f"cmake {' '.join(options)}: {flags}")


def build_rpmalloc(workshop: Workshop, sources: Path) -> Built:
    """The rpmallocwrap library of its configure.py."""
    flags = (
        "-std=gnu11 -O3 -DNDEBUG -fPIC -fvisibility=hidden -ftls-model=initial-exec"
        " -fomit-frame-pointer -D_GNU_SOURCE=1 -DENABLE_PRELOAD=1 -DENABLE_OVERRIDE=1 -pthread"
    )
    return build_unit(workshop, "librpmalloc.so", flags, sources / "rpmalloc" / "rpmalloc" / "rpmalloc.c", "-ldl")


def build_hardened_malloc(workshop: Workshop, sources: Path) -> Built:
    """The flags of its Makefile (the crate lacks it), but not -march=native, which no other peer
    has; its default configuration, which the crate spells as definitions."""
    compiler, cxx = need(workshop, "cc"), need(workshop, "c++")
    shared = (
        "-D_GNU_SOURCE -O3 -flto -fPIC -fvisibility=hidden -fno-plt -fstack-clash-protection"
        " -fstack-protector-strong"
    )
    shared += " -fcf-protection" if platform.machine() == "x86_64" else ""
    # gcc 12 knows the alignas of C23 by the header only.
    languages = {".c": "-std=c2x -include stdalign.h", ".cc": "-std=c++17 -fsized-deallocation"}
    link = "-Wl,-O1,--as-needed,-z,defs,-z,relro,-z,now,-z,nodlopen,-z,text"
    text = (sources / "config-default.conf").read_text()
    settings = [f"-D{line}" for line in re.findall(r"^\w+=\S+", text, re.M)]
    source = sources / "vendor" / "hardened-malloc"
    include = [f"-I{source / name}" for name in ("", "include", "third_party")]
    objects = []
    for file in sorted([*source.glob("*.c"), *source.glob("*.cc")]):
        objects.append(workshop.folder / f"{file.name}.o")
        flags = [*languages[file.suffix].split(), *shared.split(), *settings, *include]
        used = cxx if file.suffix == ".cc" else compiler
        workshop.run([used, *flags, "-c", file, "-o", objects[-1]])
    library = workshop.folder / "libhardened_malloc.so"
    workshop.run([cxx, *shared.split(), "-shared", link, *objects, "-o", library])
    return Built(library, compiler=compiler_version(workshop, compiler), flags=f"{shared} {link}")


def find_library(workshop: Workshop, _: Path, package: str, *patterns: str) -> Built:
    """A library of the system; its package is installed if it is not there."""

    def find() -> Path | None:
        found = [path for pattern in patterns for path in Path("/usr").glob(pattern)]
        return max(found, default=None)

    if find() is None:
        install_packages(workshop, package)
    library = find()
    if library is None:
        raise Problem(f"{package} has no {patterns[0].rpartition('/')[2]}")
    return Built(library, version=package_version(workshop, library), flags="as packaged")


def package_version(workshop: Workshop, file: Path) -> str:
    """Of the Debian package that owns a file, without epoch and Debian's own part; "" elsewhere."""
    try:
        owner = workshop.run(["dpkg", "-S", file.resolve()]).split(": ")[0].split(",")[0]
        full = workshop.run(["dpkg-query", "-W", "-f", "${Version}", owner])
    except Problem:
        return ""
    return full.strip().rpartition(":")[2]


def _of_system(package: str, *patterns: str) -> dict[str, Any]:
    return {"version": "", "origin": f"Debian {package}", "build": find_library, "more": (package, *patterns)}


_TCMALLOC, _TBB = "libtcmalloc_minimal.so.4", "libtbbmalloc_proxy.so.2"
_SCUDO = f"lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.scudo_standalone-{platform.machine()}.so"
_HARDENED = "16.0.2026071503"
RECIPES = (
    Recipe("mimalloc3", "mimalloc 3", "3.3.2", MIMALLOC, build_mimalloc, ("v3",), 10),
    Recipe("mimalloc2", "mimalloc 2", "2.3.2", MIMALLOC, build_mimalloc, ("v2",), 5),
    Recipe("jemalloc", "jemalloc", "5.3.1", JEMALLOC, build_jemalloc, (), 70),
    # glibc registers each thread's restartable sequences before tcmalloc can, unless told not
    # to; without its own registration there is no per-CPU mode.
    Recipe("tcmalloc", "google tcmalloc", "2025-06-16", TCMALLOC, build_tcmalloc, (), 240,
           environment={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}),
    Recipe("snmalloc", "snmalloc", "0.7.6", SNMALLOC, build_snmalloc, ("snmallocshim",), 40),
    Recipe("gperftools", "gperftools", **_of_system("libtcmalloc-minimal4", f"lib/*/{_TCMALLOC}", f"lib64/{_TCMALLOC}")),
    Recipe("tbb", "oneTBB", **_of_system("libtbbmalloc2", f"lib/*/{_TBB}", f"lib64/{_TBB}"), is_default=False),
    Recipe("rpmalloc", "rpmalloc", "1.4.3 b097fd0", RPMALLOC, build_rpmalloc, is_default=False),
    Recipe("scudo", "scudo", **_of_system("libclang-rt-19-dev", _SCUDO), is_default=False),
    Recipe("snmalloc-checks", "snmalloc-checks", "0.7.6", SNMALLOC, build_snmalloc, ("snmallocshim-checks",), 40,
           is_default=False),
    Recipe("hardened_malloc", "hardened_malloc", _HARDENED, HARDENED_MALLOC, build_hardened_malloc, is_default=False),
    # MI_SECURE=ON: guard pages, encoded and random free lists, checks of frees. It only tells of the errors it notices
    # if it is asked to.
    Recipe("mimalloc-secure", "mimalloc-secure", "3.3.2", MIMALLOC, build_mimalloc, ("v3", "-DMI_SECURE=4"), 10,
           is_default=False, environment={"MIMALLOC_SHOW_ERRORS": "1"}),
)
