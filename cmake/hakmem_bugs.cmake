# SPDX-License-Identifier: MIT
# hakmem_bugs.cmake: tests/secure/<name>.c and .cc have one bug each (tests/secure/bug.h) and become tests/secure/<name>.
# hakmem_tests.cmake runs them under the secure form. ./hakmem bench --suite bugs runs them under all allocators, also
# where the tests are not built. HAKMEM_BUGS are their sources, secure_<name> the targets.

set(HAKMEM_BUGS)
file(GLOB bug_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/secure/*.c" "${PROJECT_SOURCE_DIR}/tests/secure/*.cc")
foreach(source IN LISTS bug_sources)
    file(STRINGS "${source}" line REGEX "^BUG\\(" LIMIT_COUNT 1)
    if(line)
        list(APPEND HAKMEM_BUGS "${source}")
    endif()
endforeach()
if(NOT HAKMEM_BUGS)
    return()
endif()

add_library(secure_main OBJECT "${PROJECT_SOURCE_DIR}/tests/secure/main.c")
target_link_libraries(secure_main PRIVATE hakmem_warnings hakmem_no_builtin)
add_custom_target(hakmem_bugs)
foreach(source IN LISTS HAKMEM_BUGS)
    get_filename_component(name ${source} NAME_WE)
    add_executable(secure_${name} ${source} $<TARGET_OBJECTS:secure_main>)
    set_target_properties(secure_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/secure")
    # The bugs are meant, and compilers see some of them. clang calls sized delete only on demand.
    target_compile_options(secure_${name} PRIVATE
        -Wno-all -Wno-error -w $<$<COMPILE_LANGUAGE:CXX>:-fsized-deallocation>)
    target_link_libraries(secure_${name} PRIVATE hakmem_warnings hakmem_no_builtin Threads::Threads)
    add_dependencies(hakmem_bugs secure_${name})
endforeach()
