# Tests are compiled once, without a sanitizer, and linked in every row: half of what there is to compile is tests, and a
# sanitizer looks for mistakes in the libraries. It sees what these do with the memory of a test as long as that comes from
# the heap; arrays on a test's stack have no red zones. A tree with REPRISE_TEST_OBJECTS takes the objects from the tree of
# that name, which it configures where that is necessary, and asks to bring them up to date whenever it is built.

# reprise_take_objects(<target> <sources>): the target consists of what the other tree has compiled for it.
function(reprise_take_objects target)
  file(RELATIVE_PATH folder ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR})
  list(TRANSFORM ARGN REPLACE "^(.+)$" "${folder}/CMakeFiles/${target}.dir/\\1.o" OUTPUT_VARIABLE names)
  list(TRANSFORM names PREPEND ${REPRISE_TEST_OBJECTS}/ OUTPUT_VARIABLE objects)
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(${target} PRIVATE ${objects})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  add_dependencies(${target} reprise_objects_of_tests)
  set_property(GLOBAL APPEND PROPERTY REPRISE_OBJECTS_OF_TESTS ${names})
endfunction()

# Called at the end of the top folder: the target that brings the objects up to date.
function(reprise_build_objects_of_tests)
  get_property(names GLOBAL PROPERTY REPRISE_OBJECTS_OF_TESTS)
  if(NOT names)
    return()
  endif()
  set(wanted REPRISE_BUILD_TESTS:BOOL=ON)
  set(cache ${REPRISE_TEST_OBJECTS}/CMakeCache.txt)
  set(found)
  if(EXISTS ${cache})
    file(STRINGS ${cache} found REGEX "^${wanted}$")
  endif()
  if(NOT found)
    get_filename_component(preset ${REPRISE_TEST_OBJECTS} NAME)
    execute_process(COMMAND ${CMAKE_COMMAND} --preset ${preset} -D${wanted} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  endif()
  list(TRANSFORM names PREPEND ${REPRISE_TEST_OBJECTS}/ OUTPUT_VARIABLE objects)
  add_custom_target(reprise_objects_of_tests COMMAND ${CMAKE_COMMAND} --build ${REPRISE_TEST_OBJECTS} --target ${names}
                    BYPRODUCTS ${objects} COMMENT "Objects of tests from ${REPRISE_TEST_OBJECTS}" VERBATIM)
endfunction()
cmake_language(DEFER DIRECTORY ${PROJECT_SOURCE_DIR} CALL reprise_build_objects_of_tests)
