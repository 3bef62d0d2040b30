# Trains with FIRST and with SECOND, STEPS micro-batches a window, and compares the files of weights.
foreach(program FIRST SECOND)
  set(folder "${FOLDER}/${program}")
  file(REMOVE_RECURSE "${folder}")
  file(MAKE_DIRECTORY "${folder}")
  # The name of the file is inside it: the two differ in their folders only.
  execute_process(COMMAND ${${program}} --epochs 2 --limit 12 -n ${STEPS} --save weights.pt
    WORKING_DIRECTORY "${folder}" RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "expected exit status 0 of ${${program}}, found ${result}")
  endif()
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files "${FOLDER}/FIRST/weights.pt" "${FOLDER}/SECOND/weights.pt"
  RESULT_VARIABLE differ)
if(NOT differ EQUAL 0)
  message(FATAL_ERROR "expected equal weights with ${STEPS} micro-batches a window, found different files in ${FOLDER}")
endif()
