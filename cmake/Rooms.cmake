# A room is a folder under src/ with one purpose. pocketfleet_room() makes a static library of its sources
# and one test program of its *_test.cpp files. USES names the rooms below it; LIBS names foreign libraries;
# WITHOUT is a regular expression of sources that are left out.

function(pocketfleet_room name)
  cmake_parse_arguments(ROOM "" "WITHOUT" "USES;LIBS;TEST_USES;TEST_LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(ROOM_WITHOUT)
    list(FILTER sources EXCLUDE REGEX "${ROOM_WITHOUT}")
  endif()
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")

  add_library(pf_${name} STATIC ${sources})
  target_include_directories(pf_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  list(TRANSFORM ROOM_USES PREPEND pf_)
  target_link_libraries(pf_${name} PUBLIC ${ROOM_USES} ${ROOM_LIBS})

  if(POCKETFLEET_TESTS AND tests)
    list(TRANSFORM ROOM_TEST_USES PREPEND pf_)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE pf_${name} ${ROOM_TEST_USES} ${ROOM_TEST_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE POCKETFLEET_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    add_test(NAME unit.${name} COMMAND ${name}_test)
    set_tests_properties(unit.${name} PROPERTIES TIMEOUT 600 LABELS unit)
  endif()
endfunction()
