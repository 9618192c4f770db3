# Compiler flags, ccache and a fast linker where they are present.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(POCKETFLEET_CCACHE ccache)
if(POCKETFLEET_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${POCKETFLEET_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${POCKETFLEET_CCACHE})
endif()

find_program(POCKETFLEET_MOLD mold)
find_program(POCKETFLEET_LLD ld.lld)
if(CMAKE_CROSSCOMPILING)
  # The cross compiler has a linker of its own.
elseif(POCKETFLEET_MOLD)
  add_link_options(-fuse-ld=mold)
elseif(POCKETFLEET_LLD)
  add_link_options(-fuse-ld=lld)
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wno-missing-field-initializers)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false positives of this kind inside coroutines and std::string.
  add_compile_options(-Wno-restrict -Wno-maybe-uninitialized -Wno-dangling-pointer)
endif()

if(POCKETFLEET_SANITIZE)
  add_compile_options(-fsanitize=${POCKETFLEET_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${POCKETFLEET_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # What clang 14 writes before each function for this check breaks on the pieces of a coroutine.
    add_compile_options(-fno-sanitize=function)
  endif()
endif()
