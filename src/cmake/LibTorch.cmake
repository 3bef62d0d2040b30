# LibTorch as imported targets of our own: torch's find_package enables CUDA, needs a toolkit and brings wrong rpaths.
#   accel::libtorch       headers and the CPU libraries
#   accel::libtorch_cuda  the CUDA and NCCL libraries and headers (only with ACCEL_WITH_NCCL)
# Installed beside accelConfig.cmake too, so that a build and a consumer of it see the same thing.
#   ACCEL_LIBTORCH  the folder that holds lib/ and include/; else the pinned one in ACCEL_DEPS is used
include_guard(GLOBAL)
set(ACCEL_TORCH_VERSION 2.15.0)

# Where `make setup` puts what it downloads; src/cmake/common.sh has the same rule.
function(accel_find_deps result)
  if(ACCEL_DEPS)
    set(folder "${ACCEL_DEPS}")
  elseif(NOT "$ENV{ACCEL_DEPS}" STREQUAL "")
    set(folder "$ENV{ACCEL_DEPS}")
  elseif(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(folder "$ENV{XDG_CACHE_HOME}/accel")
  else()
    set(folder "$ENV{HOME}/.cache/accel")
  endif()
  get_filename_component(folder "${folder}" ABSOLUTE BASE_DIR "${CMAKE_SOURCE_DIR}")
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

# The CUDA set holds all of the CPU set, so it serves CPU builds where it is the only one there.
function(accel_find_libtorch result)
  if(ACCEL_LIBTORCH)
    get_filename_component(folder "${ACCEL_LIBTORCH}" ABSOLUTE BASE_DIR "${CMAKE_SOURCE_DIR}")
    set(${result} "${folder}" PARENT_SCOPE)
    return()
  endif()
  accel_find_deps(deps)
  set(cpu "${deps}/torch-${ACCEL_TORCH_VERSION}-cpu/torch")
  set(cuda "${deps}/torch-${ACCEL_TORCH_VERSION}-cuda/torch")
  if(ACCEL_WITH_NCCL OR (NOT EXISTS "${cpu}/lib/libtorch_cpu.so" AND EXISTS "${cuda}/lib/libtorch_cpu.so"))
    set(${result} "${cuda}" PARENT_SCOPE)
  else()
    set(${result} "${cpu}" PARENT_SCOPE)
  endif()
endfunction()

accel_find_libtorch(ACCEL_TORCH_DIR)
if(NOT EXISTS "${ACCEL_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "accel: expected LibTorch in ${ACCEL_TORCH_DIR} (lib/libtorch_cpu.so is not there); run `make setup`"
                      " (with ACCEL_CUDA=1 for -DACCEL_WITH_NCCL=ON), or give a LibTorch with -DACCEL_LIBTORCH=path")
endif()

# Wheels keep CUDA beside torch/: nvidia/cu13/{include,lib} and nvidia/<part>/{include,lib}.
get_filename_component(accel_nvidia "${ACCEL_TORCH_DIR}/../nvidia" ABSOLUTE)
file(GLOB accel_cuda_includes LIST_DIRECTORIES true "${accel_nvidia}/*/include")
file(GLOB accel_cuda_libs LIST_DIRECTORIES true "${accel_nvidia}/*/lib")

set(accel_torch_libraries torch_cpu c10)
if(ACCEL_WITH_NCCL)
  list(APPEND accel_torch_libraries torch_cuda c10_cuda)
endif()
foreach(lib IN LISTS accel_torch_libraries)
  if(NOT EXISTS "${ACCEL_TORCH_DIR}/lib/lib${lib}.so")
    message(FATAL_ERROR "accel: expected lib${lib}.so in ${ACCEL_TORCH_DIR}/lib, found none; take a LibTorch with CUDA, or"
                        " pass -DACCEL_WITH_NCCL=OFF")
  endif()
  add_library(accel::lt_${lib} SHARED IMPORTED GLOBAL)
  set_target_properties(accel::lt_${lib} PROPERTIES
    IMPORTED_LOCATION "${ACCEL_TORCH_DIR}/lib/lib${lib}.so"
    INTERFACE_INCLUDE_DIRECTORIES "${ACCEL_TORCH_DIR}/include;${ACCEL_TORCH_DIR}/include/torch/csrc/api/include")
endforeach()

add_library(accel::libtorch INTERFACE IMPORTED GLOBAL)
target_compile_features(accel::libtorch INTERFACE cxx_std_20)
target_link_libraries(accel::libtorch INTERFACE accel::lt_torch_cpu accel::lt_c10)
target_compile_definitions(accel::libtorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
# The CUDA libraries that LibTorch was built with, not those of a toolkit that happens to be installed.
if(accel_cuda_libs)
  list(JOIN accel_cuda_libs ":" accel_rpath_link)
  target_link_options(accel::libtorch INTERFACE "LINKER:-rpath-link,${accel_rpath_link}")
endif()

if(ACCEL_WITH_NCCL)
  find_path(ACCEL_CUDA_INCLUDE cuda_runtime_api.h PATHS ${accel_cuda_includes} NO_DEFAULT_PATH NO_CACHE)
  find_path(ACCEL_CUDA_INCLUDE cuda_runtime_api.h PATHS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include NO_CACHE)
  find_path(ACCEL_NCCL_INCLUDE nccl.h PATHS ${accel_cuda_includes} NO_DEFAULT_PATH NO_CACHE)
  find_path(ACCEL_NCCL_INCLUDE nccl.h PATHS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include NO_CACHE)
  if(NOT ACCEL_CUDA_INCLUDE OR NOT ACCEL_NCCL_INCLUDE)
    message(FATAL_ERROR "accel: expected cuda_runtime_api.h and nccl.h under ${accel_nvidia} or in a CUDA toolkit, found"
                        " '${ACCEL_CUDA_INCLUDE}' and '${ACCEL_NCCL_INCLUDE}'; install nvidia-cuda-runtime, nvidia-cuda-crt"
                        " and nvidia-nccl beside torch, or pass -DACCEL_WITH_NCCL=OFF")
  endif()
  # System folders named here come before the compiler's own, where a toolkit of another version may be linked in.
  set(accel_includes ${accel_cuda_includes} "${ACCEL_CUDA_INCLUDE}" "${ACCEL_NCCL_INCLUDE}")
  list(REMOVE_DUPLICATES accel_includes)
  list(REMOVE_ITEM accel_includes ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
  add_library(accel::libtorch_cuda INTERFACE IMPORTED GLOBAL)
  target_compile_definitions(accel::libtorch_cuda INTERFACE USE_C10D_NCCL)
  target_include_directories(accel::libtorch_cuda SYSTEM INTERFACE ${accel_includes})
  # Nothing calls libtorch_cuda by name; it registers its kernels when it is loaded, so the linker must keep it.
  target_link_libraries(accel::libtorch_cuda INTERFACE accel::libtorch
    "-Wl,--push-state,--no-as-needed" accel::lt_torch_cuda accel::lt_c10_cuda "-Wl,--pop-state")
endif()
set(ACCEL_TORCH_RPATH "${ACCEL_TORCH_DIR}/lib")
