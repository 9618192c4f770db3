# Libraries from Debian packages; scripts/setup installs them by name.

find_package(Threads REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(CURL 7.85 REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(tl-expected REQUIRED)
find_package(CLI11 REQUIRED)

# Only the core of prometheus-cpp; its CMake package would also ask for curl, zlib and civetweb.
find_path(POCKETFLEET_PROMETHEUS_INCLUDE prometheus/registry.h REQUIRED)
# Where the package for developers cannot be had twice (cross builds), its library goes without the short name.
find_library(POCKETFLEET_PROMETHEUS_CORE NAMES prometheus-cpp-core libprometheus-cpp-core.so.1.0 REQUIRED)
add_library(pf_prometheus INTERFACE)
target_include_directories(pf_prometheus INTERFACE ${POCKETFLEET_PROMETHEUS_INCLUDE})
target_link_libraries(pf_prometheus INTERFACE ${POCKETFLEET_PROMETHEUS_CORE} Threads::Threads)

find_path(POCKETFLEET_XXHASH_INCLUDE xxhash.h REQUIRED)
find_library(POCKETFLEET_XXHASH xxhash REQUIRED)
add_library(pf_xxhash INTERFACE)
target_include_directories(pf_xxhash INTERFACE ${POCKETFLEET_XXHASH_INCLUDE})
target_link_libraries(pf_xxhash INTERFACE ${POCKETFLEET_XXHASH})

if(POCKETFLEET_TESTS)
  find_package(GTest REQUIRED)
endif()

# Asio and Beast are compiled once, in src/net/boost.cpp, and not again in every file that uses them.
add_library(pf_boost INTERFACE)
target_link_libraries(pf_boost INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(pf_boost INTERFACE
  BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED)
