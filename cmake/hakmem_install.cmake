# hakmem_install.cmake: headers, both libraries, pkg-config and CMake files.

include(CMakePackageConfigHelpers)

install(TARGETS hakmem_shared hakmem_static hakmem_secure EXPORT hakmemTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/hakmem" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set(config_directory "${CMAKE_INSTALL_LIBDIR}/cmake/hakmem")
install(EXPORT hakmemTargets NAMESPACE hakmem:: DESTINATION ${config_directory})
file(WRITE "${PROJECT_BINARY_DIR}/hakmemConfig.cmake"
    "include(CMakeFindDependencyMacro)\nfind_dependency(Threads)\n"
    "include(\"\${CMAKE_CURRENT_LIST_DIR}/hakmemTargets.cmake\")\n")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/hakmemConfigVersion.cmake"
    COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/hakmemConfig.cmake" "${PROJECT_BINARY_DIR}/hakmemConfigVersion.cmake"
    DESTINATION ${config_directory})

# The .pc file finds its prefix from where it lies, so that an installed tree can be moved.
file(RELATIVE_PATH PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${PROJECT_SOURCE_DIR}/packaging/hakmem.pc.in" "${PROJECT_BINARY_DIR}/hakmem.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/hakmem.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# The tools that look into processes: PREFIX/share/hakmem/hakmem_observe finds PREFIX/libexec/hakmem/hakmem-attach.
if(TARGET hakmem_attach)
    install(TARGETS hakmem_attach RUNTIME DESTINATION libexec/hakmem)
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/observe/hakmem_observe" DESTINATION share/hakmem
        FILES_MATCHING PATTERN "*.py")
endif()
