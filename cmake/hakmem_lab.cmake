# hakmem_lab.cmake: lab/measure, the small process that runs and measures one program.

file(GLOB measure_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lab/measure*.c")
add_executable(measure ${measure_sources})
set_target_properties(measure PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lab" LINKER_LANGUAGE C)
target_compile_definitions(measure PRIVATE _GNU_SOURCE)
target_link_libraries(measure PRIVATE hakmem_warnings)

# lab/paths, which takes one path of the allocator at a time, served by the shared library (./hakmem cost).
file(GLOB path_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lab/paths/*.c")
add_executable(lab_paths ${path_sources})
set_target_properties(lab_paths PROPERTIES
    OUTPUT_NAME paths RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lab" LINKER_LANGUAGE C)
target_link_libraries(lab_paths PRIVATE hakmem_shared hakmem_warnings hakmem_no_builtin Threads::Threads)

# All that measuring needs.
set(HAKMEM_LAB_TARGETS measure lab_paths hakmem_shared)
foreach(name IN LISTS HAKMEM_BENCHES)
    list(APPEND HAKMEM_LAB_TARGETS bench_${name})
endforeach()
add_custom_target(hakmem_lab DEPENDS ${HAKMEM_LAB_TARGETS})
