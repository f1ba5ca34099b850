# SPDX-License-Identifier: MIT
"""Whose code a frame is: the site of an allocation is the innermost frame that is the program's own."""
import fnmatch
import functools
import os
import re

# C, C++ and Rust run-time libraries, by file name.
LIBRARY_FILE = re.compile(r"(lib(c|m|pthread|dl|rt|util|resolv|anl|nsl|nss_(dns|files|compat|systemd|resolve|my\w+)|stdc\+\+|c\+\+|c\+\+abi|gcc_s|unwind|hakmem[\w-]*)|"
                          r"ld-linux[\w-]*|ld-musl[\w-]*|libc\.musl-\w+|libstd|ld)(-[0-9a-f.]+)?\.so(\.[\d.]+)?$")
# Their headers and sources, which are in the program where they are inlined or linked.
LIBRARY_SOURCE = re.compile(r"/usr/include/|/usr/lib/gcc/|.*/include/c\+\+/|.*/libstdc\+\+-v3/|.*/libcxx(abi)?/|"
                            r"/rustc/[0-9a-f]+/|.*/rustlib/src/rust/library/|/rust/deps/|library/(alloc|core|std)/src/|"
                            r".*/registry/src/[^/]+/hashbrown-[\d.]+/")
# A function that allocates for its caller (trace/caller_names.c knows the same). 1. One of its name's words is that of an allocation function, alone or behind one of
# BEFORE: my_malloc, PyMem_Malloc, xmalloc. Only words of BEHIND follow: g_malloc0_n, zmalloc_usable, but not malloc_table.
# 2. A word of USES before it names a function of the program's own: test_malloc. 3. --wrapper names all others.
ALLOCATE = ("malloc|calloc|zalloc|realloc|reallocf|reallocarray|recallocarray|memalign|valloc|pvalloc|"
            "strdup|strndup|wcsdup|memdup|asprintf|vasprintf")
BEFORE = r"(?!pre)[a-z]|je|tc|mi|rp|kv|try|ztry|safe|fast"  # prealloc has another meaning
BEHIND = frozenset((
    "0 2 16 32 64 z n nn f x array zero zeroed raw usable size sized aligned atomic num internal impl body default base real ex ext "
    "extended func fn wrapper hook flags safe unsafe checked debug dbg with or on die abort fail "
    "failure error null exit no throw nothrow noexcept warn printf vprintf finish uncollectable pointerless plt").split())
USES = frozenset("test tests testing bench benchmark stress leak leaks leaky leaked leaking use uses using by via".split())
ALLOCATING_WORD = re.compile(rf"({BEFORE})?({ALLOCATE})[xz]?")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
START_OR_NEW = re.compile(r"operator new\b|_Zn[wa][jm]|(__rustc::)?__r(ust|dl|g)_(alloc|alloc_zeroed|realloc)$|__libc_start_|_start$")
CXX_LIBRARY = re.compile(r"std::|__gnu_cxx::|boost::|_ZN?K?St|_ZNK?9__gnu_cxx")  # some names of templates stay mangled
RUST_LIBRARY = re.compile(  # a program in C++ may have a namespace `core`
    r"(std|hashbrown|"
    r"alloc::(alloc|borrow|boxed|collections|ffi|fmt|raw_vec|rc|slice|str|string|sync|vec)|"
    r"core::(alloc|array|cell|clone|cmp|convert|default|fmt|hash|iter|mem|num|ops|option|panic|panicking|ptr|result|slice|str))::")
PARAMETER = re.compile(r"[A-Z]\w?$|[iuf]\d+$|[iu]size$|bool$|char$|str$|\(\)$")  # a type that says not whose a method is
CLONE = re.compile(r"( \[clone .*|\.(part|constprop|isra|cold|lto_priv|llvm)\b.*)$")  # what compilers append
INTERPRETER = re.compile(r"(lib)?python([\d.]+[a-z]*)?(\.so[\d.]*)?$")  # Python's program or library
SCRIPT = "py::"  # begins the name of a function of Python's, with -X perf

wrappers = []  # of the user: patterns of names


def add_wrappers(parser):
    parser.add_argument("--wrapper", "--wrappers", metavar="NAME", action="append", default=[], dest="wrappers",
                        help="a function that only passes allocations on, such as my_new or pool_*: the site is its caller; may be repeated")


def use_wrappers(arguments):
    """Functions that only pass allocations on, as shell patterns with commas between them."""
    wrappers[:] = [pattern for text in arguments.wrappers for pattern in text.split(",")]
    is_of_library.cache_clear()


def top_level(text):
    """(index, character) of what stands in no brackets."""
    depth = 0
    for index, character in enumerate(text):
        if character in ">)]}" and text[index - 1:index] != "-":
            depth -= 1
        if depth == 0:
            yield index, character
        if character in "<([{":
            depth += 1


def split_at(text, separator):
    parts, start = [], 0
    for index, character in top_level(text):
        if character == separator:
            parts.append(text[start:index])
            start = index + 1
    return parts + [text[start:]]


def bare_name(function):
    """A demangled name without arguments and, of a template's instance, without the type that it returns."""
    name = CLONE.sub("", function).replace("(anonymous namespace)", "{anonymous}")
    if "operator" in name:
        return name[name.index("operator"):] if re.match(r"(void\* ?)?operator ", name) else name
    return next((word for word in reversed(split_at(name.partition("(")[0] if "<" not in name else name, " ")) if word), name)


def plain_name(name):
    """A bare name without what stands in brackets: the types of a template's instance."""
    return "".join(character for _, character in top_level(name) if character not in "<([{>)]}")


def is_allocating(name):
    """Whether the plain name is of a known form for functions that allocate for their caller."""
    words = [word.lower() for word in WORD.findall(name.rpartition("::")[2])]
    for index, word in enumerate(words):
        known = 2 if words[index:index + 2] == ["aligned", "alloc"] else 1 if ALLOCATING_WORD.fullmatch(word) else 0
        if known:
            return BEHIND.issuperset(words[index + known:]) and USES.isdisjoint(words[:index])
    return False


def rust_owner(name):
    """Of `<Type as Trait>::method` the type, or the trait where the type says nothing; else the name."""
    if not name.startswith("<"):
        return name
    end = next((index for index, character in top_level(name) if index > 0 and character == ">"), len(name))
    inner = re.split(r" as ", name[1:end])
    kind = re.sub(r"^(&|\*const |\*mut |mut |dyn |\[|\()+", "", inner[0])
    if not PARAMETER.match(kind.rstrip("];")):
        return kind
    return inner[1] if len(inner) > 1 else "core::" + ("slice" if "[" in inner[0] else "str")  # a method of the language's own


@functools.lru_cache(1 << 16)  # names of templates are long
def is_of_library(frame):
    if frame.module and LIBRARY_FILE.match(os.path.basename(frame.module)):
        return True
    name = bare_name(frame.function)
    plain = name if "operator" in name else plain_name(name) or name
    if START_OR_NEW.match(plain) or is_allocating(plain) or any(fnmatch.fnmatchcase(plain, pattern) for pattern in wrappers):
        return True
    if frame.file:
        return bool(LIBRARY_SOURCE.match(frame.file))
    return bool(CXX_LIBRARY.match(name) or RUST_LIBRARY.match(rust_owner(name) + "::"))


def is_of_interpreter(frame):
    return bool(INTERPRETER.match(os.path.basename(frame.module)))


def own_frame(frames):
    """The innermost frame that is the program's own, named or not; without one the innermost of all. What Python's
    interpreter allocates belongs to the function of the script, if that has a name."""
    known = [frame for frame in frames if frame.function or frame.module and not frame.module.startswith("[")]
    own = next((frame for frame in known if not is_of_library(frame)), frames[0] if frames else None)
    if own is not None and is_of_interpreter(own):
        return next((frame for frame in known if frame.function.startswith(SCRIPT)), own)
    return own
