# SPDX-License-Identifier: MIT
# hakmem_install.cmake: what is installed, in four components:
#   runtime   the shared library
#   secure    its secure form
#   dev       headers, the static library, pkg-config and CMake files, hakmem(3)
#   tools     the command hakmem with all that it needs, hakmem(1), hakmem(7)

include(CMakePackageConfigHelpers)

install(TARGETS hakmem_shared EXPORT hakmemTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS hakmem_secure EXPORT hakmemTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT secure NAMELINK_COMPONENT dev)
install(TARGETS hakmem_static EXPORT hakmemTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/hakmem" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set(config_directory "${CMAKE_INSTALL_LIBDIR}/cmake/hakmem")
install(EXPORT hakmemTargets NAMESPACE hakmem:: DESTINATION ${config_directory} COMPONENT dev)
file(WRITE "${PROJECT_BINARY_DIR}/hakmemConfig.cmake"
    "include(CMakeFindDependencyMacro)\nfind_dependency(Threads)\n"
    "include(\"\${CMAKE_CURRENT_LIST_DIR}/hakmemTargets.cmake\")\n")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/hakmemConfigVersion.cmake"
    COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/hakmemConfig.cmake" "${PROJECT_BINARY_DIR}/hakmemConfigVersion.cmake"
    DESTINATION ${config_directory} COMPONENT dev)

# The .pc file finds its prefix from where it lies, so that an installed tree can be moved.
file(RELATIVE_PATH PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${PROJECT_SOURCE_DIR}/packaging/hakmem.pc.in" "${PROJECT_BINARY_DIR}/hakmem.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/hakmem.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT dev)

# The launcher lies beside the programs that it starts. The file `installed` tells it where the other parts are, relative
# to itself, so that this tree can be moved, too.
set(private_directory "${CMAKE_INSTALL_LIBEXECDIR}/hakmem")
set(private_libraries "${CMAKE_INSTALL_LIBDIR}/hakmem")
set(shared_files "${CMAKE_INSTALL_DATADIR}/hakmem")
function(hakmem_note_part name path)
    if(NOT IS_ABSOLUTE "${path}")
        file(RELATIVE_PATH path "/${private_directory}" "/${path}")
    endif()
    file(APPEND "${PROJECT_BINARY_DIR}/installed.new" "${name}=${path}\n")
endfunction()
file(WRITE "${PROJECT_BINARY_DIR}/installed.new" "version=${PROJECT_VERSION}\n")
hakmem_note_part(library "${CMAKE_INSTALL_LIBDIR}/libhakmem.so.${PROJECT_VERSION_MAJOR}")
hakmem_note_part(library-secure "${CMAKE_INSTALL_LIBDIR}/libhakmem-secure.so.${PROJECT_VERSION_MAJOR}")
hakmem_note_part(recorder "${private_libraries}/libhakmem-recorder.so")
hakmem_note_part(tracer "${private_directory}/hakmem-trace")
hakmem_note_part(runner "${private_directory}/hakmem-run")
if(DEFINED SKBUILD_DATA_DIR) # the wheel's own package
    hakmem_note_part(python "")
else()
    hakmem_note_part(python "${shared_files}/python/hakmem")
endif()
configure_file("${PROJECT_BINARY_DIR}/installed.new" "${PROJECT_BINARY_DIR}/installed" COPYONLY)

install(PROGRAMS "${PROJECT_SOURCE_DIR}/hakmem" DESTINATION ${private_directory} COMPONENT tools)
install(PROGRAMS "${PROJECT_SOURCE_DIR}/tools/install_packages.sh" DESTINATION ${private_directory}/tools COMPONENT tools)
install(FILES "${PROJECT_BINARY_DIR}/installed" DESTINATION ${private_directory} COMPONENT tools)
if(NOT DEFINED SKBUILD_DATA_DIR) # the laboratory needs the sources
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/hakmem" DESTINATION "${shared_files}/python" COMPONENT tools
        FILES_MATCHING PATTERN "*.py" PATTERN "*.html" PATTERN "*.txt" PATTERN "lab" EXCLUDE)
endif()
install(TARGETS hakmem_runner RUNTIME DESTINATION ${private_directory} COMPONENT tools)
if(TARGET hakmem_attach)
    install(TARGETS hakmem_attach RUNTIME DESTINATION ${private_directory} COMPONENT tools)
endif()
if(TARGET hakmem_trace) # OPTIONAL: who builds the libraries alone has none
    install(TARGETS hakmem_recorder hakmem_trace
        LIBRARY DESTINATION ${private_libraries} COMPONENT tools OPTIONAL
        RUNTIME DESTINATION ${private_directory} COMPONENT tools OPTIONAL)
endif()

# A wheel cannot hold links: its command is a script of Python's (packaging/python), and its manuals go to where `man`
# of the environment looks.
set(manuals "${CMAKE_INSTALL_MANDIR}")
if(DEFINED SKBUILD_DATA_DIR)
    set(manuals "${SKBUILD_DATA_DIR}/share/man")
    set_target_properties(hakmem_shared hakmem_secure PROPERTIES VERSION ${PROJECT_VERSION_MAJOR})
else()
    file(RELATIVE_PATH launcher "/${CMAKE_INSTALL_BINDIR}" "/${private_directory}/hakmem")
    file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/link")
    file(CREATE_LINK "${launcher}" "${PROJECT_BINARY_DIR}/link/hakmem" SYMBOLIC)
    install(FILES "${PROJECT_BINARY_DIR}/link/hakmem" DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endif()
set(manual_directory "${PROJECT_SOURCE_DIR}/packaging/man")
install(FILES "${manual_directory}/hakmem.1" DESTINATION "${manuals}/man1" COMPONENT tools)
install(FILES "${manual_directory}/hakmem.7" DESTINATION "${manuals}/man7" COMPONENT tools)
install(FILES "${manual_directory}/hakmem.3" DESTINATION "${manuals}/man3" COMPONENT dev)
