# SPDX-License-Identifier: MIT
"""The other allocators: where each comes from, and how it becomes a library to preload.

Each is built the way its authors build a release: their own build system where the crate has it
(jemalloc, snmalloc), else their flags. Names are exact, because they are easily confused: "google
tcmalloc" and "gperftools" are two libraries that both call themselves tcmalloc.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType

from .problem import Problem
from .toolbox import (Crate, Workshop, crate_commit, crate_sources, install_packages, need)

MIMALLOC = Crate("libmimalloc-sys", "0.1.49", "6a45a52f43e1c16f667ccfe4dd8c85b7f7c204fd5e3bf46c5b0db9a5c3c0b8e9")
JEMALLOC = Crate("tikv-jemalloc-sys", "0.7.1", "1a2825c78386b4ae0314074867860ba9577875de945f05992c38815cbec327f0")
TCMALLOC = Crate("libtcmalloc-sys", "0.1.14", "33e204268a3b09862788a2894346c768b95b2cb29cba42c5e2bb9ea7f48fa317")
SNMALLOC = Crate("snmalloc-sys", "0.7.6", "f09c93c55f9a2b8dab75738a83c771231c5f408af65b8657433fe5bc93cc76cb")
RPMALLOC = Crate("rpmalloc-sys", "0.2.3", "8d4b7d5e225a53887ee57fcec492eaf114b8e290f7072d035adc6ddd6810b67b")
HARDENED_MALLOC = Crate(
    "hardened-malloc-sys", "16.0.2026071503",
    "8a634cdd17eb2cea9e8ab0977f9b7401a5882db9fadb594d080bc67f230b6ec2",
)

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
    build: FunctionType  # (Workshop, Path of the sources) -> Built
    seconds: float = 5.0  # on two cores; only for the time left
    is_default: bool = True  # part of `bench` unless the user says otherwise
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Changes when the recipe does, so that the library is made anew."""
        text = f"{self.origin}{self.version}{self.environment}{_source_of(self.build)}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def make(self, workshop: Workshop) -> tuple[Built, str]:
        """Fetches, builds; also the commit of the source's repository."""
        if not isinstance(self.origin, Crate):
            return self.build(workshop, Path()), ""
        sources = crate_sources(workshop, self.origin)
        workshop.tell("building")
        return self.build(workshop, sources), crate_commit(sources)


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


def _build_mimalloc(workshop: Workshop, sources: Path, series: str, form: str = "") -> Built:
    """The flags of its CMakeLists.txt (the crate lacks CMake's other files), in one unit. `form` is
    a definition more."""
    compiler = need(workshop, "cc")
    flags = (
        "-std=gnu11 -O3 -DNDEBUG -fPIC -fvisibility=hidden -ftls-model=initial-exec"
        " -fno-builtin-malloc -DMI_MALLOC_OVERRIDE -DMI_SHARED_LIB -DMI_SHARED_LIB_EXPORT"
        " -DMI_BUILD_RELEASE -DMI_CMAKE_BUILD_TYPE=release -pthread"
    )
    flags += form and f" {form}"
    source = sources / "c_src" / "mimalloc" / series
    library = workshop.folder / "libmimalloc.so"
    include = f"-I{source / 'include'}"
    unit = source / "src" / "static.c"
    workshop.run([compiler, *flags.split(), include, "-shared", unit, "-o", library])
    return Built(library, compiler=compiler_version(workshop, compiler), flags=flags)


def build_mimalloc3(workshop: Workshop, sources: Path) -> Built:
    return _build_mimalloc(workshop, sources, "v3")


def build_mimalloc2(workshop: Workshop, sources: Path) -> Built:
    return _build_mimalloc(workshop, sources, "v2")


def build_mimalloc_secure(workshop: Workshop, sources: Path) -> Built:
    """Its MI_SECURE=ON: guard pages, encoded and random free lists, checks of frees."""
    return _build_mimalloc(workshop, sources, "v3", "-DMI_SECURE=4")


def build_jemalloc(workshop: Workshop, sources: Path) -> Built:
    """Its own configure and make, all defaults; the crate keeps configure in another folder."""
    compiler, make = need(workshop, "cc"), need(workshop, "make")
    tree = workshop.folder / "jemalloc"
    nameless = f"-ffile-prefix-map={tree}=."  # the same library wherever it is built
    settings = {
        "CC": compiler, "CXX": need(workshop, "c++"),
        "EXTRA_CFLAGS": nameless, "EXTRA_CXXFLAGS": nameless,
    }
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
    return Built(
        workshop.folder / "libjemalloc.so",
        compiler=compiler_version(workshop, compiler),
        flags=f"configure {' '.join(options)}: {flags}",
    )


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


def _build_snmalloc(workshop: Workshop, sources: Path, target: str) -> Built:
    cmake, compiler = need(workshop, "cmake"), cxx_compiler(workshop)
    need(workshop, "make")
    tree = workshop.folder / "build"
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DSNMALLOC_BUILD_TESTING=OFF"]
    workshop.run([
        cmake, "-G", "Unix Makefiles", "-S", sources / "upstream", "-B", tree, *options,
        f"-DCMAKE_CXX_COMPILER={compiler}",
    ])
    workshop.run([cmake, "--build", tree, "-j", str(workshop.jobs), "--target", target])
    used = (tree / "CMakeFiles" / f"{target}.dir" / "flags.make").read_text()
    flags = " ".join(re.findall(r"(?<= )-[^DWI]\S*", used.partition("CXX_FLAGS =")[2]))
    return Built(
        tree / f"lib{target}.so",
        compiler=compiler_version(workshop, compiler),
        flags=f"cmake {' '.join(options)}: {flags}",
    )


def build_snmalloc(workshop: Workshop, sources: Path) -> Built:
    return _build_snmalloc(workshop, sources, "snmallocshim")


def build_snmalloc_checks(workshop: Workshop, sources: Path) -> Built:
    return _build_snmalloc(workshop, sources, "snmallocshim-checks")


def build_rpmalloc(workshop: Workshop, sources: Path) -> Built:
    """The rpmallocwrap library of its configure.py."""
    compiler = need(workshop, "cc")
    flags = (
        "-std=gnu11 -O3 -DNDEBUG -fPIC -fvisibility=hidden -ftls-model=initial-exec"
        " -fomit-frame-pointer -D_GNU_SOURCE=1 -DENABLE_PRELOAD=1 -DENABLE_OVERRIDE=1 -pthread"
    )
    library = workshop.folder / "librpmalloc.so"
    source = sources / "rpmalloc" / "rpmalloc" / "rpmalloc.c"
    workshop.run([compiler, *flags.split(), "-shared", source, "-o", library, "-ldl"])
    return Built(library, compiler=compiler_version(workshop, compiler), flags=flags)


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


def _from_system(workshop: Workshop, package: str, *patterns: str) -> Built:
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


def find_gperftools(workshop: Workshop, _: Path) -> Built:
    pattern = "libtcmalloc_minimal.so.4"
    return _from_system(workshop, "libtcmalloc-minimal4", f"lib/*/{pattern}", f"lib64/{pattern}")


def find_onetbb(workshop: Workshop, _: Path) -> Built:
    pattern = "libtbbmalloc_proxy.so.2"
    return _from_system(workshop, "libtbbmalloc2", f"lib/*/{pattern}", f"lib64/{pattern}")


def find_scudo(workshop: Workshop, _: Path) -> Built:
    folder = "lib/llvm-19/lib/clang/19/lib/linux"
    pattern = f"{folder}/libclang_rt.scudo_standalone-{platform.machine()}.so"
    return _from_system(workshop, "libclang-rt-19-dev", pattern)


RECIPES = (
    Recipe("mimalloc3", "mimalloc 3", "3.3.2", MIMALLOC, build_mimalloc3, 10),
    Recipe("mimalloc2", "mimalloc 2", "2.3.2", MIMALLOC, build_mimalloc2, 5),
    Recipe("jemalloc", "jemalloc", "5.3.1", JEMALLOC, build_jemalloc, 70),
    Recipe(
        "tcmalloc", "google tcmalloc", "2025-06-16", TCMALLOC, build_tcmalloc, 240,
        # glibc registers each thread's restartable sequences before tcmalloc can, unless told not
        # to; without its own registration there is no per-CPU mode.
        environment={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"},
    ),
    Recipe("snmalloc", "snmalloc", "0.7.6", SNMALLOC, build_snmalloc, 40),
    Recipe("gperftools", "gperftools", "", "Debian libtcmalloc-minimal4", find_gperftools),
    Recipe("tbb", "oneTBB", "", "Debian libtbbmalloc2", find_onetbb, is_default=False),
    Recipe("rpmalloc", "rpmalloc", "1.4.3 b097fd0", RPMALLOC, build_rpmalloc, is_default=False),
    Recipe("scudo", "scudo", "", "Debian libclang-rt-19-dev", find_scudo, is_default=False),
    Recipe("snmalloc-checks", "snmalloc-checks", "0.7.6", SNMALLOC, build_snmalloc_checks, 40, is_default=False),
    Recipe(
        "hardened_malloc", "hardened_malloc", "16.0.2026071503", HARDENED_MALLOC,
        build_hardened_malloc, 5, is_default=False,
    ),
    Recipe(
        "mimalloc-secure", "mimalloc-secure", "3.3.2", MIMALLOC, build_mimalloc_secure, 10,
        is_default=False,
        # It only tells of the errors it notices if it is asked to.
        environment={"MIMALLOC_SHOW_ERRORS": "1"},
    ),
)
