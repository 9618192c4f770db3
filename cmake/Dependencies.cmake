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

find_path(POCKETFLEET_NGHTTP2_INCLUDE nghttp2/nghttp2.h REQUIRED)
find_library(POCKETFLEET_NGHTTP2 nghttp2 REQUIRED)
add_library(pf_nghttp2 INTERFACE)
target_include_directories(pf_nghttp2 INTERFACE ${POCKETFLEET_NGHTTP2_INCLUDE})
target_link_libraries(pf_nghttp2 INTERFACE ${POCKETFLEET_NGHTTP2})

# QUIC is left out where one of these is missing, as in builds that carry no GnuTLS.
find_path(POCKETFLEET_NGTCP2_INCLUDE ngtcp2/ngtcp2_crypto_gnutls.h)
find_library(POCKETFLEET_NGTCP2 ngtcp2)
find_library(POCKETFLEET_NGTCP2_CRYPTO ngtcp2_crypto_gnutls)
find_library(POCKETFLEET_GNUTLS gnutls)
if(POCKETFLEET_NGTCP2_INCLUDE AND POCKETFLEET_NGTCP2 AND POCKETFLEET_NGTCP2_CRYPTO AND POCKETFLEET_GNUTLS)
  add_library(pf_ngtcp2 INTERFACE)
  target_include_directories(pf_ngtcp2 INTERFACE ${POCKETFLEET_NGTCP2_INCLUDE})
  target_link_libraries(pf_ngtcp2 INTERFACE ${POCKETFLEET_NGTCP2_CRYPTO} ${POCKETFLEET_NGTCP2} ${POCKETFLEET_GNUTLS})
endif()

if(POCKETFLEET_TESTS)
  find_package(GTest REQUIRED)
endif()

# Asio and Beast are compiled once, in src/net/boost.cpp, and not again in every file that uses them.
add_library(pf_boost INTERFACE)
target_link_libraries(pf_boost INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(pf_boost INTERFACE
  BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED)
