# cmake -DFOLDER=... -DTOLERANCE=... -DRANKS=<n> -DCOMPARE=<compare_runs> -P compare_runs.cmake @@ <command> @@ <command>
# Runs both with `--save` and compares what they saved. The second says that it trains on RANKS ranks.
include("${CMAKE_CURRENT_LIST_DIR}/commands.cmake")

file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}")
foreach(run 1 2)
  execute_process(COMMAND ${command${run}} --save run${run}.pt WORKING_DIRECTORY "${FOLDER}"
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "expected exit status 0 of ${command${run}}, found ${result}:\n${output}")
  endif()
endforeach()
if(NOT "\n${output}" MATCHES "\nranks ${RANKS}\n")
  message(FATAL_ERROR "expected `${command2}` to train on ${RANKS} ranks, found other words:\n${output}")
endif()
execute_process(COMMAND ${COMPARE} ${TOLERANCE} run1.pt run2.pt WORKING_DIRECTORY "${FOLDER}" RESULT_VARIABLE differ
                OUTPUT_VARIABLE output)
message(STATUS "${output}")
if(NOT differ EQUAL 0)
  message(FATAL_ERROR "expected equal losses and weights of `${command1}` and `${command2}`: ${output}")
endif()
