# SPDX-License-Identifier: MIT
# hakmem_bench.cmake: bench/<name>.c becomes bench/<name> (any allocator, by LD_PRELOAD) and bench/<name>_static;
# bench/replications/<name>.c becomes bench/replications/<name>, also under a sanitizer.

file(GLOB harness_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/harness*.c")
file(GLOB bench_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*.c")
list(REMOVE_ITEM bench_sources ${harness_sources})
set(HAKMEM_BENCHES)

if(harness_sources)
    add_library(bench_harness OBJECT ${harness_sources})
    target_include_directories(bench_harness PUBLIC "${PROJECT_SOURCE_DIR}/bench" "${PROJECT_SOURCE_DIR}/include")
    target_link_libraries(bench_harness PUBLIC hakmem_warnings hakmem_no_builtin hakmem_sanitizer)
endif()

# Models of single mechanisms: HAKMEM_REPLICATIONS are name/variant, by what the sources list.
file(GLOB replication_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/replications/*.c")
set(HAKMEM_REPLICATIONS)
foreach(source IN LISTS replication_sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(replication_${name} ${source})
    set_target_properties(replication_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench/replications" LINKER_LANGUAGE C
        POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(replication_${name} PRIVATE -fPIE)
    target_link_libraries(replication_${name} PRIVATE bench_harness Threads::Threads m ${CMAKE_DL_LIBS})
    file(STRINGS "${source}" line REGEX "^static const char \\*const variants" LIMIT_COUNT 1)
    string(REGEX MATCHALL "\"[a-z_]+\"" variants "${line}")
    list(TRANSFORM variants REPLACE "\"" "")
    list(TRANSFORM variants PREPEND "${name}/")
    list(APPEND HAKMEM_REPLICATIONS ${variants})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
endforeach()
if(HAKMEM_SANITIZE)
    return()
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
