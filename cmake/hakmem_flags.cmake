# SPDX-License-Identifier: MIT
# hakmem_flags.cmake: the compiler's and linker's options, one interface target per kind of code.

set(CMAKE_C_STANDARD 17)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Without -DNDEBUG: assertions are HAK_LEVEL's business, and tests may use assert.
foreach(language C CXX)
    set(CMAKE_${language}_FLAGS_RELWITHDEBINFO "-O2 -g")
    set(CMAKE_${language}_FLAGS_DEBUG "-O1 -g")
endforeach()
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# The C++ file needs nothing of libstdc++ at link time: what it refers to is weak. So no C program that links the
# static library, and not the shared one either, shall be given libstdc++ for its sake.
set(CMAKE_CXX_IMPLICIT_LINK_LIBRARIES "")

add_library(hakmem_warnings INTERFACE)
target_compile_options(hakmem_warnings INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wundef -Wcast-qual -Wvla -Wnull-dereference
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
    $<$<C_COMPILER_ID:Clang>:-Wno-string-conversion> # CHECK(!"what is wrong")
    $<$<BOOL:${HAKMEM_WERROR}>:-Werror>)

# The compiler must neither drop a malloc/free pair of a test nor turn our calloc into a call of calloc.
add_library(hakmem_no_builtin INTERFACE)
target_compile_options(hakmem_no_builtin INTERFACE
    -fno-builtin-malloc -fno-builtin-free -fno-builtin-calloc -fno-builtin-realloc
    -fno-builtin-memalign -fno-builtin-aligned_alloc -fno-builtin-posix_memalign -fno-builtin-reallocarray
    -fno-builtin-valloc -fno-builtin-pvalloc -fno-builtin-strdup)

add_library(hakmem_sanitizer INTERFACE)
if(HAKMEM_SANITIZE STREQUAL "fuzzer")
    # Coverage only: what is linked with the fuzzer's main says so itself.
    target_compile_options(hakmem_sanitizer INTERFACE -fsanitize=fuzzer-no-link)
elseif(HAKMEM_SANITIZE)
    set(sanitize -fsanitize=${HAKMEM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_compile_options(hakmem_sanitizer INTERFACE ${sanitize})
    target_link_options(hakmem_sanitizer INTERFACE ${sanitize})
endif()

# Sources of src/ and whatever sees its internal headers.
add_library(hakmem_internal INTERFACE)
target_include_directories(hakmem_internal INTERFACE
    "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
# _GNU_SOURCE: the unity file defines it for all, so the many files see the same headers.
target_compile_definitions(hakmem_internal INTERFACE
    HAK_LEVEL=${HAKMEM_LEVEL} HAK_CONFIG_FILE="${HAKMEM_CONFIG_FILE}" _GNU_SOURCE
    $<$<BOOL:${HAKMEM_SECURE}>:HAK_SECURE=1>)
# no-plt: the loader binds all functions at the start. A call of the C library so needs no stack for the loader, of which
# a thread may have 4 KiB, and src/override/direct.c sees what is bound.
target_compile_options(hakmem_internal INTERFACE
    -fvisibility=hidden -fno-semantic-interposition -fno-plt)
target_link_libraries(hakmem_internal INTERFACE hakmem_warnings hakmem_no_builtin hakmem_sanitizer)
