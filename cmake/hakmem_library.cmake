# SPDX-License-Identifier: MIT
# hakmem_library.cmake: libhakmem.so and libhakmem.a (with the C library's names), hakmem_api (without them).
# The target hakmem_libraries builds the first two, or hakmem_api where a sanitizer is on.

set(HAKMEM_LAYERS base os core region slab large cache arena heap control learn observe front)
set(api_sources)
foreach(layer IN LISTS HAKMEM_LAYERS)
    file(GLOB layer_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${layer}/*.c")
    list(APPEND api_sources ${layer_sources})
endforeach()
# Only in the secure form.
set(secure_sources core/seal.c slab/slab_secure.c cache/quarantine.c heap/heap_secure.c control/secure_end.c observe/secure_report.c)
list(TRANSFORM secure_sources PREPEND "${PROJECT_SOURCE_DIR}/src/")
if(NOT HAKMEM_SECURE)
    list(REMOVE_ITEM api_sources ${secure_sources})
endif()
file(GLOB override_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/override/*.c")
file(GLOB override_cxx_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/override/*.cc")
# Only in the shared library. dlopen.c is optimised in every form: its last call has to be a jump.
set(dlopen_source "${PROJECT_SOURCE_DIR}/src/override/dlopen.c")
set(shared_sources "${dlopen_source}" "${PROJECT_SOURCE_DIR}/src/override/direct.c"
    "${PROJECT_SOURCE_DIR}/src/override/early.c")
list(REMOVE_ITEM override_sources ${shared_sources})
set_source_files_properties("${dlopen_source}" PROPERTIES COMPILE_OPTIONS -O2)
if(HAKMEM_UNITY)
    set(api_sources "${PROJECT_SOURCE_DIR}/src/hakmem.c")
    set(override_sources)
    set(secure_sources)
endif()

find_package(Threads REQUIRED)

# The code of an archive gets a section of its own, whose bounds the linker tells: by these a sample's stack finds the
# program's call (src/observe/stacks.c). No compiler option does this, so objcopy renames the sections.
function(hakmem_own_section target)
    set(renames)
    foreach(section .text .text.hot .text.hot. .text.unlikely .text.unlikely.)
        list(APPEND renames --rename-section ${section}=hakmem_text)
    endforeach()
    add_custom_command(TARGET ${target} POST_BUILD
        COMMAND ${CMAKE_OBJCOPY} ${renames} ${ARGN} $<TARGET_FILE:${target}> VERBATIM)
endfunction()

if(NOT HAKMEM_SANITIZE)
    add_library(hakmem_objects OBJECT ${api_sources})
    target_compile_definitions(hakmem_objects PRIVATE HAK_OVERRIDE=1)
    add_library(hakmem_override OBJECT ${override_sources} ${override_cxx_sources})
    foreach(objects hakmem_objects hakmem_override)
        target_link_libraries(${objects} PRIVATE hakmem_internal)
    endforeach()
endif()
if(HAKMEM_SANITIZE OR HAKMEM_SECURE) # the secure form's delete in C calls the one in C++, which is not in here
    add_library(hakmem_api STATIC EXCLUDE_FROM_ALL ${api_sources})
    target_compile_definitions(hakmem_api PRIVATE HAK_OVERRIDE=0)
    target_link_libraries(hakmem_api PRIVATE $<BUILD_INTERFACE:hakmem_internal>)
    if(HAKMEM_SANITIZE)
        target_compile_options(hakmem_api PRIVATE -O1) # with -O2 gcc takes half a minute for this one file
    endif()
    hakmem_own_section(hakmem_api)
else()
    # The same code. In one file it has the C library's names, too, which its users do not see here.
    add_library(hakmem_api STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:hakmem_objects>)
    set_target_properties(hakmem_api PROPERTIES LINKER_LANGUAGE C)
    set(names)
    if(HAKMEM_UNITY)
        set(names --wildcard --keep-global-symbol=hak*)
    endif()
    hakmem_own_section(hakmem_api ${names})
endif()
target_link_libraries(hakmem_api PUBLIC Threads::Threads)
target_include_directories(hakmem_api PUBLIC "${PROJECT_SOURCE_DIR}/include")
if(HAKMEM_SANITIZE)
    add_custom_target(hakmem_libraries)
    add_dependencies(hakmem_libraries hakmem_api)
    add_custom_target(hakmem_forms DEPENDS hakmem_libraries)
    return()
endif()

add_library(hakmem_shared SHARED $<TARGET_OBJECTS:hakmem_objects> $<TARGET_OBJECTS:hakmem_override>
    ${shared_sources})
target_link_libraries(hakmem_shared PRIVATE $<BUILD_INTERFACE:hakmem_internal>)
add_library(hakmem_static STATIC $<TARGET_OBJECTS:hakmem_objects> $<TARGET_OBJECTS:hakmem_override>)
hakmem_own_section(hakmem_static)
foreach(library hakmem_shared hakmem_static)
    set_target_properties(${library} PROPERTIES OUTPUT_NAME hakmem LINKER_LANGUAGE C)
    target_link_libraries(${library} PUBLIC Threads::Threads)
    target_include_directories(${library} PUBLIC
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
# The secure form: the same sources with HAK_SECURE. Its tables of relocations and its settings are read-only once the
# process has started (relro, now); code and constants lie in pages of their own.
add_library(hakmem_secure SHARED ${api_sources} $<$<NOT:$<BOOL:${HAKMEM_SECURE}>>:${secure_sources}> ${override_sources} ${override_cxx_sources} ${shared_sources})
target_compile_definitions(hakmem_secure PRIVATE HAK_OVERRIDE=1 $<$<NOT:$<BOOL:${HAKMEM_SECURE}>>:HAK_SECURE=1>)
set_target_properties(hakmem_secure PROPERTIES OUTPUT_NAME hakmem-secure LINKER_LANGUAGE C)
if(CMAKE_CROSSCOMPILING) # for a few tests: half the time of the build
    target_compile_options(hakmem_secure PRIVATE -O1)
endif()
target_link_libraries(hakmem_secure PRIVATE $<BUILD_INTERFACE:hakmem_internal> PUBLIC Threads::Threads)
target_include_directories(hakmem_secure PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
add_custom_target(hakmem_libraries)
add_dependencies(hakmem_libraries hakmem_shared hakmem_static)
# All that is installed.
add_custom_target(hakmem_forms)
add_dependencies(hakmem_forms hakmem_libraries hakmem_secure)
set_target_properties(hakmem_shared PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME hakmem)
set_target_properties(hakmem_secure PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME secure)
set_target_properties(hakmem_static PROPERTIES EXPORT_NAME static)
# defs:     a symbol that is neither ours, nor of the C library, nor weak, is a mistake
# lazy:     the weak symbols of libstdc++ stay undefined in C programs
# nodelete: blocks and thread destructors outlive any dlclose
# initfirst: fork handlers that are registered first run last before a fork, when no other handler and no thread that
# another handler waits for needs memory any more
# noseparate-code: constants beside the code, two mappings instead of four at each start (docs/decisions/0054)
set(version_script "${PROJECT_SOURCE_DIR}/src/hakmem.map")
foreach(library hakmem_shared hakmem_secure)
    set_target_properties(${library} PROPERTIES LINK_DEPENDS "${version_script}")
    target_link_options(${library} PRIVATE "-Wl,--version-script=${version_script}")
endforeach()
target_link_options(hakmem_shared PRIVATE
    -Wl,-z,defs -Wl,-z,lazy -Wl,-z,nodelete -Wl,-z,initfirst -Wl,-z,noexecstack -Wl,-z,noseparate-code -Wl,--as-needed)
target_link_options(hakmem_secure PRIVATE
    -Wl,-z,defs -Wl,-z,now -Wl,-z,relro -Wl,-z,nodelete -Wl,-z,initfirst -Wl,-z,noexecstack -Wl,-z,separate-code
    -Wl,--as-needed)
if(NOT HAKMEM_UNITY)
    # In one file, hakmem's functions call each other directly. They must do so here, too, because a recorder has functions
    # of the same names (trace/wrappers.c). A program's own operator new stays what the other ones call, and its malloc
    # (src/override/family.c).
    set(bound malloc realloc free memalign aligned_alloc posix_memalign)
    list(TRANSFORM bound PREPEND "-Wl,--export-dynamic-symbol=")
    target_link_options(hakmem_shared PRIVATE -Wl,-Bsymbolic-functions -Wl,--dynamic-list-cpp-new ${bound})
endif()
