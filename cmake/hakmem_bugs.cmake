# SPDX-License-Identifier: MIT
# hakmem_bugs.cmake: tests/secure/bugs, a program with one bug at a time. hakmem_tests.cmake runs each under the secure
# form. ./hakmem bench --suite bugs runs them under all allocators, also where the tests are not built. HAKMEM_BUGS are
# their names. The suite attacks does so with tests/secure/attacks.

set(HAKMEM_BUGS)
set(source "${PROJECT_SOURCE_DIR}/tests/secure/bugs.cc")
if(NOT EXISTS "${source}")
    return()
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
file(STRINGS "${source}" lines REGEX "^BUG\\(")
foreach(line IN LISTS lines)
    string(REGEX REPLACE "^BUG\\(([a-z_0-9]+),.*" "\\1" name "${line}")
    list(APPEND HAKMEM_BUGS ${name})
endforeach()
add_executable(hakmem_bugs "${source}")
set_target_properties(hakmem_bugs PROPERTIES
    OUTPUT_NAME bugs RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/secure")
# The bugs are meant, and compilers see some of them. clang calls sized delete only on demand.
target_compile_options(hakmem_bugs PRIVATE -Wno-all -Wno-error -w -fsized-deallocation)
target_link_libraries(hakmem_bugs PRIVATE hakmem_warnings hakmem_no_builtin Threads::Threads)

file(GLOB attack_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/secure/attacks*.c")
add_executable(hakmem_attacks ${attack_sources})
set_target_properties(hakmem_attacks PROPERTIES LINKER_LANGUAGE CXX
    OUTPUT_NAME attacks RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/secure")
target_compile_options(hakmem_attacks PRIVATE -Wno-all -Wno-error -w)
target_link_libraries(hakmem_attacks PRIVATE hakmem_warnings hakmem_no_builtin Threads::Threads ${CMAKE_DL_LIBS})
