# SPDX-License-Identifier: MIT
# hakmem_run.cmake: hakmem-run, which checks what stands behind `./hakmem run`, `record` and `replay`, and becomes the
# program. The target hakmem_runner is what the launcher builds beside a library.

file(GLOB run_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/run/*.c")
add_executable(hakmem_runner ${run_sources})
set_target_properties(hakmem_runner PROPERTIES OUTPUT_NAME hakmem-run LINKER_LANGUAGE C)
target_include_directories(hakmem_runner PRIVATE "${PROJECT_SOURCE_DIR}/src")
target_compile_definitions(hakmem_runner PRIVATE _GNU_SOURCE)
target_link_libraries(hakmem_runner PRIVATE hakmem_warnings)
add_dependencies(hakmem_libraries hakmem_runner)
