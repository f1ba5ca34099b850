# SPDX-License-Identifier: MIT
# hakmem_bench.cmake: bench/<name>.c becomes bench/<name> (any allocator, by LD_PRELOAD) and bench/<name>_static.

file(GLOB harness_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/harness*.c")
file(GLOB bench_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*.c")
list(REMOVE_ITEM bench_sources ${harness_sources})
set(HAKMEM_BENCHES)
if(HAKMEM_SANITIZE)
    return()
endif()

if(harness_sources)
    add_library(bench_harness OBJECT ${harness_sources})
    target_include_directories(bench_harness PUBLIC "${PROJECT_SOURCE_DIR}/bench" "${PROJECT_SOURCE_DIR}/include")
    target_link_libraries(bench_harness PUBLIC hakmem_warnings hakmem_no_builtin)
endif()

function(hakmem_add_bench name object)
    add_executable(bench_${name} ${object})
    set_target_properties(bench_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench" LINKER_LANGUAGE C)
    target_link_libraries(bench_${name} PRIVATE bench_harness ${ARGN} Threads::Threads m ${CMAKE_DL_LIBS})
endfunction()

foreach(source IN LISTS bench_sources)
    get_filename_component(name ${source} NAME_WE)
    # One object file for both programs, compiled as a program's: -fPIC is for libraries.
    add_library(bench_${name}_object OBJECT ${source})
    set_target_properties(bench_${name}_object PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(bench_${name}_object PRIVATE -fPIE)
    target_link_libraries(bench_${name}_object PRIVATE bench_harness Threads::Threads)
    hakmem_add_bench(${name} $<TARGET_OBJECTS:bench_${name}_object>)
    hakmem_add_bench(${name}_static $<TARGET_OBJECTS:bench_${name}_object> hakmem_static)
    list(APPEND HAKMEM_BENCHES ${name})
endforeach()
