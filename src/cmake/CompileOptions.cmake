# Flags of our own targets; nothing here reaches a consumer.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "build type" FORCE)
endif()

add_library(accel_compile_options INTERFACE)
target_compile_features(accel_compile_options INTERFACE cxx_std_20)
target_compile_options(accel_compile_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  -Werror=unused-result $<$<BOOL:${ACCEL_WARNINGS_AS_ERRORS}>:-Werror>)

# For the whole directory tree: an unsanitized program cannot link a sanitized library.
if(ACCEL_SANITIZE)
  add_compile_options(-fsanitize=${ACCEL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ACCEL_SANITIZE})
  # Instrumented code makes g++ suspect variables of LibTorch's headers that are always set; other builds keep the warning.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()

# Paths relative to the checkout: two checkouts, and two build folders of one, share what they compiled.
find_program(ACCEL_CCACHE ccache)
if(ACCEL_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
                                  "${ACCEL_CCACHE}")
endif()
