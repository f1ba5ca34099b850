# SPDX-License-Identifier: MIT
# hakmem_package.cmake: Debian packages of the components of hakmem_install.cmake (docs/install.md):
#   cmake --preset package && cmake --build build/package --target package
# Only where hakmem is configured for /usr, because GNUInstallDirs then knows the distribution's folders.

if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr" OR CMAKE_CROSSCOMPILING)
    return()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME hakmem)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own
if(NOT CPACK_PACKAGE_CONTACT) # who hands packages on gives an address with -D
    set(CPACK_PACKAGE_CONTACT "hakmem authors <hakmem@example.org>")
endif()
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SOURCE hakmem)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_DEBUGINFO_PACKAGE ON) # debug symbols in packages of their own
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
# What CPack does not do: documents, compressed manuals, triggers, the same bytes each time.
set(CPACK_POST_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/packaging/debian/finish.cmake")
set(CPACK_HAKMEM_SCRIPT "${PROJECT_SOURCE_DIR}/packaging/debian/finish.sh")

# hakmem_package(COMPONENT NAME SECTION DEPENDS SUMMARY LINE...): a package of a component. Another form of the library
# needs a component in its install() calls, and a call of this; finish.sh treats all packages alike.
macro(hakmem_package component name section depends summary)
    string(TOUPPER ${component} upper)
    list(APPEND CPACK_COMPONENTS_ALL ${component})
    set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
    set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
    set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}")
    set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}")
    foreach(line ${ARGN})
        string(APPEND CPACK_DEBIAN_${upper}_DESCRIPTION "\n${line}")
    endforeach()
endmacro()

set(library_package libhakmem${PROJECT_VERSION_MAJOR})
set(secure_package libhakmem-secure${PROJECT_VERSION_MAJOR})
set(library_depends "${library_package} (= ${PROJECT_VERSION})")
set(secure_depends "${secure_package} (= ${PROJECT_VERSION})")
set(about
    "hakmem is fast, needs little memory, returns freed memory to the system by"
    "itself, and shows where the memory of a program is."
    ".")
hakmem_package(runtime ${library_package} libs "" "drop-in malloc that shows where memory goes - shared library"
    ${about} "This package holds the library, which LD_PRELOAD gives to any program.")
hakmem_package(secure ${secure_package} libs "" "drop-in malloc that shows where memory goes - secure form"
    ${about} "This package holds the form of the library that ends a program at misuse of"
    "its heap, and makes attacks on it harder.")
hakmem_package(dev libhakmem-dev libdevel "${library_depends}, ${secure_depends}"
    "drop-in malloc that shows where memory goes - development files"
    ${about} "This package holds the headers, the static library, and the files of"
    "pkg-config and CMake.")
hakmem_package(tools hakmem devel "${library_depends}, python3" "drop-in malloc that shows where memory goes - tools"
    ${about} "This package holds the command hakmem: it runs programs on the library,"
    "records their allocations, and shows the heap of a running process.")
# For `hakmem run --secure`, and for what `hakmem top` draws its screen with.
set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "${secure_package}, python3-venv")
include(CPack)
