# llama.cpp, built once for every preset that asks for the same options, as static libraries behind pf_llama.
# It is never compiled with our sanitizers: their runs look at our code, and a build of llama.cpp costs minutes.

set(pinned ${POCKETFLEET_DEPS_DIR}/llama.cpp)
if(POCKETFLEET_LLAMA_SOURCE)
  set(POCKETFLEET_LLAMA_DIR ${POCKETFLEET_LLAMA_SOURCE})
else()
  set(POCKETFLEET_LLAMA_DIR ${pinned})
endif()
if(NOT EXISTS ${POCKETFLEET_LLAMA_DIR}/include/llama.h)
  message(FATAL_ERROR "no llama.cpp in ${POCKETFLEET_LLAMA_DIR}: run scripts/setup, or pass -DPOCKETFLEET_LLAMA_SOURCE=DIR")
endif()

set(llama_options
  -DCMAKE_BUILD_TYPE=Release
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF
  -DLLAMA_BUILD_COMMON=ON -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON -DLLAMA_USE_PREBUILT_UI=OFF
  -DLLAMA_OPENSSL=OFF -DGGML_OPENMP=ON)
if(POCKETFLEET_PORTABLE)
  # The libraries find one another in the folder that they lie in, wherever that is.
  list(APPEND llama_options -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH=$ORIGIN)
elseif(CMAKE_CROSSCOMPILING)
  list(APPEND llama_options -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF)
else()
  list(APPEND llama_options -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON)
endif()
# GCC builds it always, so that a clang preset (fuzzing) does not build it a second time.
set(llama_compilers -DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++)
if(CMAKE_CROSSCOMPILING)
  set(llama_compilers "")
  get_filename_component(toolchain ${CMAKE_TOOLCHAIN_FILE} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
  list(APPEND llama_options -DCMAKE_TOOLCHAIN_FILE=${toolchain}
    -DCMAKE_PROJECT_INCLUDE=${CMAKE_SOURCE_DIR}/cmake/llama-arm64-variants.cmake)
endif()
if(POCKETFLEET_CCACHE)
  list(APPEND llama_options -DCMAKE_C_COMPILER_LAUNCHER=${POCKETFLEET_CCACHE} -DCMAKE_CXX_COMPILER_LAUNCHER=${POCKETFLEET_CCACHE})
endif()

string(SHA256 llama_key "${POCKETFLEET_LLAMA_DIR};${llama_options}")
string(SUBSTRING ${llama_key} 0 12 llama_key)
set(POCKETFLEET_LLAMA_BUILD ${POCKETFLEET_DEPS_DIR}/llama-${llama_key})

set(llama_targets llama ggml llama-common)

include(ExternalProject)
if(POCKETFLEET_PORTABLE)
  set(llama_libs
    ${POCKETFLEET_LLAMA_BUILD}/bin/libllama-common.so ${POCKETFLEET_LLAMA_BUILD}/bin/libllama.so
    ${POCKETFLEET_LLAMA_BUILD}/bin/libggml.so ${POCKETFLEET_LLAMA_BUILD}/bin/libggml-base.so)
else()
  set(llama_libs
    ${POCKETFLEET_LLAMA_BUILD}/common/libllama-common.a
    ${POCKETFLEET_LLAMA_BUILD}/common/libllama-common-base.a
    ${POCKETFLEET_LLAMA_BUILD}/vendor/cpp-httplib/libcpp-httplib.a
    ${POCKETFLEET_LLAMA_BUILD}/src/libllama.a
    ${POCKETFLEET_LLAMA_BUILD}/ggml/src/libggml.a
    ${POCKETFLEET_LLAMA_BUILD}/ggml/src/libggml-cpu.a
    ${POCKETFLEET_LLAMA_BUILD}/ggml/src/libggml-base.a)
endif()
ExternalProject_Add(llama_cpp
  SOURCE_DIR ${POCKETFLEET_LLAMA_DIR}
  BINARY_DIR ${POCKETFLEET_LLAMA_BUILD}
  PREFIX ${POCKETFLEET_LLAMA_BUILD}/external
  CONFIGURE_COMMAND ${CMAKE_COMMAND} -G Ninja -S <SOURCE_DIR> -B <BINARY_DIR> ${llama_compilers} ${llama_options}
  BUILD_COMMAND ${CMAKE_COMMAND} --build <BINARY_DIR> --target ${llama_targets}
  INSTALL_COMMAND ""
  BUILD_BYPRODUCTS ${llama_libs}
  USES_TERMINAL_BUILD ON)

# ggml alone, with the headers that a backend of its own needs.
add_library(pf_ggml INTERFACE)
add_dependencies(pf_ggml llama_cpp)
target_include_directories(pf_ggml SYSTEM INTERFACE ${POCKETFLEET_LLAMA_DIR}/ggml/include ${POCKETFLEET_LLAMA_DIR}/ggml/src)
set(ggml_libs ${llama_libs})
list(FILTER ggml_libs INCLUDE REGEX "/libggml")
target_link_libraries(pf_ggml INTERFACE ${ggml_libs} Threads::Threads ${CMAKE_DL_LIBS})
if(NOT POCKETFLEET_PORTABLE)
  target_link_libraries(pf_ggml INTERFACE gomp)
endif()

add_library(pf_llama INTERFACE)
add_dependencies(pf_llama llama_cpp)
target_include_directories(pf_llama SYSTEM INTERFACE
  ${POCKETFLEET_LLAMA_DIR}/include ${POCKETFLEET_LLAMA_DIR}/ggml/include ${POCKETFLEET_LLAMA_DIR}/common)
target_link_libraries(pf_llama INTERFACE ${llama_libs} Threads::Threads ${CMAKE_DL_LIBS})
if(POCKETFLEET_PORTABLE)
  target_compile_definitions(pf_llama INTERFACE POCKETFLEET_PORTABLE)
  # Beside the programs, where the variant for this processor is looked for.
  add_custom_target(llama_beside ALL
    COMMAND sh -c "mkdir -p '${CMAKE_RUNTIME_OUTPUT_DIRECTORY}' && cp -a '${POCKETFLEET_LLAMA_BUILD}'/bin/*.so* '${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/'"
    DEPENDS llama_cpp VERBATIM)
else()
  target_link_libraries(pf_llama INTERFACE gomp)
endif()

# Peers for the benchmarks: never part of the product.
add_custom_target(llama_peers
  COMMAND ${CMAKE_COMMAND} --build ${POCKETFLEET_LLAMA_BUILD} --target llama-server llama-bench llama-quantize
  DEPENDS llama_cpp USES_TERMINAL)
