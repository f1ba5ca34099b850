# hakmem_lab.cmake: lab/measure, the small process that runs and measures one program.

file(GLOB measure_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/lab/measure*.c")
add_executable(measure ${measure_sources})
set_target_properties(measure PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lab" LINKER_LANGUAGE C)
target_compile_definitions(measure PRIVATE _GNU_SOURCE)
target_link_libraries(measure PRIVATE hakmem_warnings)
