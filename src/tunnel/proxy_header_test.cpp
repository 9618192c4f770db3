#include "tunnel/proxy_header.h"

#include <gtest/gtest.h>

namespace pocketfleet::tunnel {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    out += two;
  }
  return out;
}

TEST(ProxyHeader, HasTheBytesOfTheStandard) {
  EXPECT_EQ(hex(make_proxy_header({"192.0.2.7", 4711}, {"198.51.100.1", 443})),
            "0d0a0d0a000d0a515549540a"
            "2111000c"
            "c0000207c6336401126701bb");
  EXPECT_EQ(hex(make_proxy_header({"2001:db8::7", 4711}, {"198.51.100.1", 443})),
            "0d0a0d0a000d0a515549540a"
            "21210024"
            "20010db8000000000000000000000007"
            "00000000000000000000000000000000"
            "12670000");
  EXPECT_EQ(hex(make_proxy_header({}, {})), "0d0a0d0a000d0a515549540a20000000");
}

TEST(ProxyHeader, IsReadInAnySplitAndNoByteTooMany) {
  for (const ProxyAddress& from : {ProxyAddress{"192.0.2.7", 4711}, ProxyAddress{"2001:db8::7", 1}, ProxyAddress{}}) {
    const std::string header = make_proxy_header(from, {"192.0.2.1", 443});
    const std::string all = header + "\x16\x03\x01";
    for (size_t size = 0; size <= all.size(); ++size) {
      const auto read = read_proxy_header(all.substr(0, size));
      ASSERT_TRUE(read) << size;
      EXPECT_EQ(read->size, size < header.size() ? 0 : header.size());
      if (read->size > 0) {
        EXPECT_EQ(read->from, from);
      }
    }
  }
}

TEST(ProxyHeader, WhatIsNoneIsRefused) {
  EXPECT_FALSE(read_proxy_header("GET / HTTP/1.1"));
  EXPECT_FALSE(read_proxy_header("\r\n\r\nX"));
  std::string header = make_proxy_header({"192.0.2.7", 4711}, {});
  header[12] = '\x11';
  EXPECT_FALSE(read_proxy_header(header));
  header[12] = '\x22';
  EXPECT_FALSE(read_proxy_header(header));
  header[12] = '\x21';
  header[14] = '\x7f';
  EXPECT_FALSE(read_proxy_header(header)) << "too long";
  header[14] = '\0';
  header[15] = '\x04';
  EXPECT_FALSE(read_proxy_header(header)) << "addresses cut short";
}

TEST(ProxyHeader, NamesOfPeersAreTakenApart) {
  EXPECT_EQ(proxy_address_of("192.0.2.7:4711"), (ProxyAddress{"192.0.2.7", 4711}));
  EXPECT_EQ(proxy_address_of("[2001:db8::7]:4711"), (ProxyAddress{"2001:db8::7", 4711}));
  for (const char* none : {"unix", "", "localhost:80", "192.0.2.7:", "192.0.2.7:99999"})
    EXPECT_EQ(proxy_address_of(none), ProxyAddress{});
}

}  // namespace
}  // namespace pocketfleet::tunnel
