# SPDX-License-Identifier: MIT
# hakmem_trace.cmake: libhakmem-recorder.so, which records every call of malloc and free, and hakmem-trace, which runs a
# program on it, replays a trace and says what is in it. Without zstd (Debian: libzstd-dev) traces are larger.

if(NOT EXISTS "${PROJECT_SOURCE_DIR}/trace/format.h") # a tree without its sources
    return()
endif()
find_path(ZSTD_INCLUDE zstd.h)
# The archive: a shared zstd would come before the recorded program's own.
find_library(ZSTD_LIBRARY libzstd.a)
mark_as_advanced(ZSTD_INCLUDE ZSTD_LIBRARY)
set(TRACE_TESTED encode.c decode.c walk.c) # by tests/trace/test_format.c

set(trace_directory "${PROJECT_SOURCE_DIR}/trace")
add_library(hakmem_trace_flags INTERFACE)
target_link_libraries(hakmem_trace_flags INTERFACE hakmem_warnings hakmem_no_builtin)
target_include_directories(hakmem_trace_flags INTERFACE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include")
target_compile_options(hakmem_trace_flags INTERFACE -fvisibility=hidden)
if(ZSTD_INCLUDE AND ZSTD_LIBRARY AND NOT CMAKE_CROSSCOMPILING)
    target_include_directories(hakmem_trace_flags SYSTEM INTERFACE "${ZSTD_INCLUDE}")
    target_link_libraries(hakmem_trace_flags INTERFACE "${ZSTD_LIBRARY}")
    target_compile_definitions(hakmem_trace_flags INTERFACE TRACE_ZSTD=1)
else()
    target_compile_definitions(hakmem_trace_flags INTERFACE TRACE_ZSTD=0)
endif()

set(recorder_sources caller_names.c callers.c encode.c large.c modules.c output.c recorder.c unwinding.c wrappers.c
    wrappers_cxx.c)
list(TRANSFORM recorder_sources PREPEND "${trace_directory}/")
file(GLOB unwinder_sources "${PROJECT_SOURCE_DIR}/src/observe/unwind*.c")
list(REMOVE_ITEM unwinder_sources "${PROJECT_SOURCE_DIR}/src/observe/unwind_index.c")
list(APPEND recorder_sources "${PROJECT_SOURCE_DIR}/src/base/mapped.c"
    "${PROJECT_SOURCE_DIR}/src/base/text.c" ${unwinder_sources})
add_library(hakmem_recorder SHARED ${recorder_sources})
set_target_properties(hakmem_recorder PROPERTIES OUTPUT_NAME hakmem-recorder LINKER_LANGUAGE C)
target_link_libraries(hakmem_recorder PRIVATE hakmem_trace_flags Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(hakmem_recorder PRIVATE
    -Wl,-z,defs -Wl,-z,nodelete -Wl,-z,noexecstack -Wl,--as-needed -Wl,--exclude-libs,ALL)

set(reader_sources decode.c main.c record.c remarks.c replay.c replay_all.c replay_image.c sites.c summary.c timeline.c
    walk.c)
list(TRANSFORM reader_sources PREPEND "${trace_directory}/")
add_executable(hakmem_trace ${reader_sources} "${PROJECT_SOURCE_DIR}/run/watch.c")
target_include_directories(hakmem_trace PRIVATE "${PROJECT_SOURCE_DIR}/run")
set_target_properties(hakmem_trace PROPERTIES OUTPUT_NAME hakmem-trace LINKER_LANGUAGE C)
target_link_libraries(hakmem_trace PRIVATE hakmem_trace_flags Threads::Threads ${CMAKE_DL_LIBS})

add_custom_target(hakmem_tracing)
add_dependencies(hakmem_tracing hakmem_recorder hakmem_trace)
