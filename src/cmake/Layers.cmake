# accel_add_layer(<name> SOURCES <file>... [LINKS <target>...] [TORCH])
# One object library a layer. What a layer may include of the others is checked by tests/support/layer_check.py.
# TORCH: its files see LibTorch; without it a torch header does not compile there.
function(accel_add_layer name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;LINKS" ${ARGN})
  set(target accel_${name})
  add_library(${target} OBJECT ${arg_SOURCES})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(${target} PRIVATE accel_compile_options ${arg_LINKS})
  if(arg_TORCH)
    target_link_libraries(${target} PRIVATE accel_libtorch)
  endif()
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON)
  set_property(GLOBAL APPEND PROPERTY ACCEL_LAYERS ${name})
endfunction()

# accel_make_library(<target> <STATIC|SHARED|nothing>): a library of all layers.
function(accel_make_library target)
  get_property(layers GLOBAL PROPERTY ACCEL_LAYERS)
  add_library(${target} ${ARGN})
  foreach(layer IN LISTS layers)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:accel_${layer}>)
  endforeach()
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
                                              "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_link_libraries(${target} PUBLIC accel::libtorch Threads::Threads PRIVATE accel::zip)
  if(ACCEL_WITH_NCCL)
    target_link_libraries(${target} PUBLIC accel::libtorch_cuda)
  endif()
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()
