# libzip as accel::zip, for .npz files. Its own package, as Debian has it, asks for the programs of another package.
# Installed beside accelConfig.cmake too: who links a static accel needs it as well.
include_guard(GLOBAL)
find_path(ACCEL_ZIP_INCLUDE zip.h)
find_library(ACCEL_ZIP_LIBRARY zip)
mark_as_advanced(ACCEL_ZIP_INCLUDE ACCEL_ZIP_LIBRARY)
if(NOT ACCEL_ZIP_INCLUDE OR NOT ACCEL_ZIP_LIBRARY)
  message(FATAL_ERROR "accel: expected libzip with its header, found none; install it (Debian: libzip-dev)")
endif()
add_library(accel::zip UNKNOWN IMPORTED GLOBAL)
set_target_properties(accel::zip PROPERTIES IMPORTED_LOCATION "${ACCEL_ZIP_LIBRARY}"
                                            INTERFACE_INCLUDE_DIRECTORIES "${ACCEL_ZIP_INCLUDE}")
