# cmake --install: the library, its headers and a package that find_package(accel) finds.
if(NOT ACCEL_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/accel")

install(TARGETS accel EXPORT accelTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/accel" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.hpp")
install(EXPORT accelTargets NAMESPACE accel:: DESTINATION "${package_dir}")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/accelConfig.cmake.in" "${PROJECT_BINARY_DIR}/accelConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/accelConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/accelConfig.cmake" "${PROJECT_BINARY_DIR}/accelConfigVersion.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/LibTorch.cmake" "${CMAKE_CURRENT_LIST_DIR}/LibZip.cmake"
        DESTINATION "${package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
