# SPDX-License-Identifier: MIT
# hakmem_attach.cmake: hakmem-attach, which starts the observer in a running process (./hakmem observe PID).

file(GLOB attach_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/attach/*.c")
if(attach_sources AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|aarch64)$")
    add_executable(hakmem_attach ${attach_sources})
    set_target_properties(hakmem_attach PROPERTIES OUTPUT_NAME hakmem-attach LINKER_LANGUAGE C)
    target_include_directories(hakmem_attach PRIVATE "${PROJECT_SOURCE_DIR}/include")
    target_compile_definitions(hakmem_attach PRIVATE _GNU_SOURCE)
    target_link_libraries(hakmem_attach PRIVATE hakmem_warnings)
    add_dependencies(hakmem_libraries hakmem_attach)
endif()
