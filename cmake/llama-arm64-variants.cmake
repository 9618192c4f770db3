# Included by llama.cpp's own build after its project() commands, when it is built for every kind of ARM64 processor.
# GGML's list for Linux has none with int8 matrix products but without SVE, which is what most phones are; its list for Android has. And the
# processor variants with SME ask for more than GCC 12 knows: they are built without SME's own instructions, and are chosen as before.
if(PROJECT_NAME STREQUAL "ggml")
  set(CMAKE_SYSTEM_NAME Android)
elseif(PROJECT_NAME STREQUAL "llama.cpp" AND CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 14)
  function(pocketfleet_drop_sme)
    foreach(target ggml-cpu-android_armv9.2_1 ggml-cpu-android_armv9.2_2)
      if(TARGET ${target})
        get_target_property(options ${target} COMPILE_OPTIONS)
        string(REPLACE "-march=armv9.2-a" "-march=armv8.6-a" options "${options}")
        string(REPLACE "+sme" "" options "${options}")
        set_target_properties(${target} PROPERTIES COMPILE_OPTIONS "${options}")
      endif()
    endforeach()
  endfunction()
  cmake_language(DEFER CALL pocketfleet_drop_sme)
endif()
