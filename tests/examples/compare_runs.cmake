# cmake -DFOLDER=... -DTOLERANCE=... -DCOMPARE=<compare_runs> -P compare_runs.cmake @@ <command> @@ <command>
# Runs both with `--save` and compares what they saved.
set(part 0)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(index RANGE 0 ${last})
  set(word "${CMAKE_ARGV${index}}")
  if(word STREQUAL "@@")
    math(EXPR part "${part} + 1")
  elseif(part GREATER 0)
    list(APPEND command${part} "${word}")
  endif()
endforeach()

file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}")
foreach(run 1 2)
  execute_process(COMMAND ${command${run}} --save run${run}.pt WORKING_DIRECTORY "${FOLDER}"
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "expected exit status 0 of ${command${run}}, found ${result}:\n${output}")
  endif()
endforeach()
execute_process(COMMAND ${COMPARE} ${TOLERANCE} run1.pt run2.pt WORKING_DIRECTORY "${FOLDER}" RESULT_VARIABLE differ
                OUTPUT_VARIABLE output)
message(STATUS "${output}")
if(NOT differ EQUAL 0)
  message(FATAL_ERROR "expected equal losses and weights of `${command1}` and `${command2}`: ${output}")
endif()
