# accel_add_runtime_program(<target> SOURCES <file>... [DOCTEST])
# A program of core and runtime alone: no LibTorch, so it builds and starts in a moment. DOCTEST adds the tests' main.
include_guard(GLOBAL)

function(accel_add_runtime_program target)
  cmake_parse_arguments(arg "DOCTEST" "" "SOURCES" ${ARGN})
  if(arg_DOCTEST)
    list(APPEND arg_SOURCES "${PROJECT_SOURCE_DIR}/tests/support/rank_main.cpp")
  endif()
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src"
                                               "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${target} PRIVATE accel_core accel_runtime accel_compile_options Threads::Threads)
  if(ACCEL_WITH_MPI)
    target_link_libraries(${target} PRIVATE MPI::MPI_C)
  endif()
endfunction()

# accel_add_runtime_unit_test(<layer>.<topic> SOURCES <file>...): as accel_add_unit_test, without LibTorch.
function(accel_add_runtime_unit_test name)
  cmake_parse_arguments(arg "" "" "SOURCES" ${ARGN})
  string(REPLACE "." "_" target "unit_${name}")
  accel_add_runtime_program(${target} SOURCES ${arg_SOURCES} DOCTEST)
  add_dependencies(accel_unit_tests ${target})
  accel_add_command_test(unit.${name} COMMAND ${target} LABELS unit)
  set_property(TEST unit.${name} APPEND PROPERTY ENVIRONMENT ACCEL_TEST_RANKS=1)
endfunction()

# accel_add_runtime_ranks_test(<topic> SOURCES <file>... RANKS <n>...): as accel_add_ranks_test, without LibTorch.
function(accel_add_runtime_ranks_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;RANKS" ${ARGN})
  set(target "ranks_${name}")
  accel_add_runtime_program(${target} SOURCES ${arg_SOURCES} DOCTEST)
  add_dependencies(accel_ranks_tests ${target})
  foreach(ranks IN LISTS arg_RANKS)
    accel_add_command_test(ranks.${name}.n${ranks} LABELS ranks-${ranks} PROCESSORS ${ranks} TIMEOUT 60
      COMMAND ${accel_mpirun} -n ${ranks} $<TARGET_FILE:${target}>)
    set_property(TEST ranks.${name}.n${ranks} APPEND PROPERTY ENVIRONMENT ACCEL_TEST_RANKS=${ranks})
  endforeach()
endfunction()
