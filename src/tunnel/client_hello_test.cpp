#include "tunnel/client_hello.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>

#include "base/files.h"

namespace pocketfleet::tunnel {
namespace {

using State = ClientHelloReader::State;

struct Outcome {
  State state = State::kNeedMore;
  ClientHello hello;
  std::string reason;
  int alert = 0;
  bool operator==(const Outcome&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  out << (outcome.state == State::kDone      ? "done"
          : outcome.state == State::kRefused ? "refused"
                                             : "needs more")
      << ", name \"" << outcome.hello.server_name << "\", ALPN";
  for (const std::string& name : outcome.hello.alpn) out << " \"" << name << "\"";
  return out << (outcome.hello.ech ? ", ECH" : "") << ", version " << outcome.hello.version << ", reason \"" << outcome.reason
             << "\", alert " << outcome.alert;
}

Outcome named(std::string name, std::vector<std::string> alpn = {}, uint16_t version = 0x0303, bool ech = false) {
  Outcome out;
  out.state = State::kDone;
  out.hello.server_name = std::move(name);
  out.hello.alpn = std::move(alpn);
  out.hello.version = version;
  out.hello.ech = ech;
  return out;
}

Outcome refused(std::string reason, int alert) {
  return {State::kRefused, {}, std::move(reason), alert};
}

// In pieces of `piece` bytes, behind a first one of `first`.
Outcome read_in_pieces(std::string_view bytes, size_t first, size_t piece) {
  ClientHelloReader reader;
  reader.push(bytes.substr(0, first));
  for (size_t at = std::min(first, bytes.size()); at < bytes.size(); at += piece) reader.push(bytes.substr(at, piece));
  if (reader.state() != State::kRefused) {
    EXPECT_EQ(reader.buffered(), bytes);
  }
  return {reader.state(), reader.hello(), std::string(reader.reason()), reader.alert()};
}

// Of every split in two, and byte by byte: all must be the same.
Outcome read_split(std::string_view bytes) {
  const Outcome whole = read_in_pieces(bytes, bytes.size(), 1);
  EXPECT_EQ(read_in_pieces(bytes, 0, 1), whole) << "byte by byte";
  const size_t step = bytes.size() < 6'000 ? 1 : 97;
  for (size_t at = 0; at < bytes.size(); at += step) {
    const Outcome split = read_in_pieces(bytes, at, bytes.size());
    if (split == whole) continue;
    ADD_FAILURE() << "split at " << at << ": " << split << "; whole: " << whole;
    break;
  }
  return whole;
}

std::string number(size_t value, size_t width) {
  std::string out;
  while (width-- > 0) out.push_back(static_cast<char>(value >> 8 * width & 0xff));
  return out;
}
std::string counted(size_t width, std::string_view bytes) {
  return number(bytes.size(), width).append(bytes);
}
std::string extension(size_t type, std::string_view data) {
  return number(type, 2) + counted(2, data);
}
std::string server_name(std::string_view name) {
  return extension(0, counted(2, number(0, 1) + counted(2, name)));
}
std::string alpn(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += counted(1, name);
  return extension(16, counted(2, list));
}
std::string body(std::string_view extensions) {
  return number(0x0303, 2) + std::string(32, 'r') + counted(1, std::string(32, 's')) + counted(2, number(0x13011302, 4)) +
         counted(1, number(0, 1)) + counted(2, extensions);
}
std::string record(std::string_view payload, size_t type = 22, size_t version = 0x0301) {
  return number(type, 1) + number(version, 2) + counted(2, payload);
}
std::string records(std::string_view message, size_t piece = 16'384) {
  std::string out;
  for (size_t at = 0; at < message.size(); at += piece) out += record(message.substr(at, piece));
  return out;
}
std::string message(std::string_view extensions) {
  return number(1, 1) + counted(3, body(extensions));
}
std::string hello(std::string_view extensions) {
  return records(message(extensions));
}
// With so many bytes in all, in one record.
std::string hello_of(size_t size) {
  const std::string name = server_name("a.example");
  const size_t rest = hello(name + extension(21, {})).size();
  return hello(name + extension(21, std::string(size - rest, '\0')));
}

// What most clients say, with something at every place that the reader looks at.
std::string usual_extensions() {
  return extension(0x3a3a, {}) + extension(43, counted(1, number(0x7a7a, 2) + number(0x0304, 2) + number(0x0303, 2))) +
         server_name("0123456789abcdef.example.com") + alpn({"h2", "http/1.1"}) + extension(51, std::string(40, 'k')) +
         extension(0xdada, number(0, 1));
}
const Outcome kUsual = named("0123456789abcdef.example.com", {"h2", "http/1.1"}, 0x0304);

TEST(ClientHelloReader, TakesAnySplit) {
  EXPECT_EQ(read_split(hello(usual_extensions())), kUsual);
}

TEST(ClientHelloReader, TakesAMessageOverManyRecords) {
  const std::string whole = message(usual_extensions());
  for (const size_t piece : {1, 2, 3, 4, 5, 16, 100}) EXPECT_EQ(read_split(records(whole, piece)), kUsual) << piece;
}

TEST(ClientHelloReader, KeepsWhatFollowsTheHello) {
  const std::string rest = record("\1", 20, 0x0303) + record(std::string(100, 'e'), 23, 0x0303);
  for (const size_t piece : {16'384, 16}) {
    const std::string bytes = records(message(usual_extensions()), piece) + rest;
    EXPECT_EQ(read_split(bytes), kUsual);
    ClientHelloReader reader;
    EXPECT_EQ(reader.push(bytes), State::kDone);
    EXPECT_EQ(reader.push("more"), State::kDone);
    EXPECT_EQ(reader.take(), bytes + "more");
  }
  // More of the same record.
  EXPECT_EQ(read_split(records(message(usual_extensions()) + "rest")), kUsual);
}

TEST(ClientHelloReader, SaysThatItNeedsMoreUntilTheLastByte) {
  for (const std::string& bytes : {hello(usual_extensions()), records(message(usual_extensions()), 7)}) {
    for (size_t size = 0; size < bytes.size(); ++size)
      ASSERT_EQ(read_in_pieces(bytes.substr(0, size), size, 1).state, State::kNeedMore) << size;
  }
}

TEST(ClientHelloReader, TakesSizesUpToTheBoundAndNoMore) {
  for (const size_t size : {1'023, 1'024, 1'025, 1'460, 2'048, 4'095, 4'096, 4'097, 8'192, 16'383, 16'384})
    EXPECT_EQ(read_split(hello_of(size)), named("a.example")) << size;
  EXPECT_EQ(hello_of(kMostHelloBytes).size(), kMostHelloBytes);
  for (const size_t size : {16'385, 16'389}) EXPECT_EQ(read_split(hello_of(size)), refused("too large", 40)) << size;
  // What says that it will be too large is not waited for.
  EXPECT_EQ(read_split(record(number(1, 1) + number(16'376, 3))), refused("too large", 40));
  EXPECT_EQ(read_split(record(number(1, 1) + number(0xffffff, 3))), refused("too large", 40));
  EXPECT_EQ(read_split(record(number(1, 1) + number(16'375, 3))).state, State::kNeedMore);
}

TEST(ClientHelloReader, RecordHeadersCountAsBytesToo) {
  const std::string whole = message(server_name("a.example") + extension(21, std::string(4'000, '\0')));
  EXPECT_EQ(read_split(records(whole, 2)), named("a.example"));
  EXPECT_EQ(read_split(records(whole, 1)), refused("too large", 40));
}

TEST(ClientHelloReader, HoldsNoMoreThanTheBoundAndOnePush) {
  ClientHelloReader reader;
  const std::string bytes = records(message(extension(21, std::string(16'000, '\0'))), 1);
  for (size_t at = 0; at < bytes.size(); at += 100) reader.push(std::string_view(bytes).substr(at, 100));
  EXPECT_EQ(reader.state(), State::kRefused);
  EXPECT_LT(reader.buffered().size(), kMostHelloBytes + 100);
}

TEST(ClientHelloReader, ARecordMayHaveSixteenKibibytesAndNoMore) {
  EXPECT_EQ(read_split(number(22, 1) + number(0x0301, 2) + number(16'385, 2)), refused("record too long", 22));
  EXPECT_EQ(read_split(number(22, 1) + number(0x0301, 2) + number(16'384, 2)).state, State::kNeedMore);
}

TEST(ClientHelloReader, AFewEmptyRecordsAreForgiven) {
  const std::string whole = message(usual_extensions());
  const std::string parts = records(whole.substr(0, 3)) + "%" + records(whole.substr(3));
  const auto with = [&](size_t count) {
    std::string between;
    for (size_t made = 0; made < count; ++made) between += record({});
    std::string out = parts;
    return out.replace(out.find('%'), 1, between);
  };
  EXPECT_EQ(read_split(with(1)), kUsual);
  EXPECT_EQ(read_split(with(16)), kUsual);
  EXPECT_EQ(read_split(with(17)), refused("empty records", 10));
  EXPECT_EQ(read_split(record({}) + hello(usual_extensions())), kUsual);
}

TEST(ClientHelloReader, TheNameIsWhatDnsWouldTake) {
  const std::string label(63, 'l');
  const std::string longest = label + "." + label + "." + label + "." + std::string(61, 'm');
  for (const auto& [given, read] : std::map<std::string, std::string>{{"example.com", "example.com"},
                                                                      {"EXAMPLE.Com", "example.com"},
                                                                      {"example.com.", "example.com"},
                                                                      {"localhost", "localhost"},
                                                                      {"a_b.x--y.example", "a_b.x--y.example"},
                                                                      {"1.2.3.4.example", "1.2.3.4.example"},
                                                                      {"1.2.3.x4", "1.2.3.x4"},
                                                                      {longest, longest},
                                                                      {longest + ".", longest}})
    EXPECT_EQ(read_split(hello(server_name(given))), named(read)) << given;
  for (const std::string& bad :
       {std::string("."), std::string("a..b"), std::string(".a"), std::string("a.."), std::string("a b"), std::string("a\0b", 3),
        std::string("a.b\0", 4), std::string("m\xc3\xbcnchen.example"), std::string("a/b"), std::string("*.example"),
        std::string("a:443"), std::string("[::1]"), std::string("2001:db8::1"), longest + "m", label + "l.example"})
    EXPECT_EQ(read_split(hello(server_name(bad))), refused("bad server name", 112)) << bad;
  for (const char* address : {"127.0.0.1", "104.236.167.107", "1.2.3.4.", "2130706433", "127.1"})
    EXPECT_EQ(read_split(hello(server_name(address))), refused("an address as server name", 112)) << address;
}

TEST(ClientHelloReader, WithoutANameThereIsNoWayToGo) {
  EXPECT_EQ(read_split(hello(alpn({"h2"}))), refused("no server name", 112));
  EXPECT_EQ(read_split(hello({})), refused("no server name", 112));
  // Without the field for extensions.
  const std::string bare = body({});
  EXPECT_EQ(read_split(records(number(1, 1) + counted(3, bare.substr(0, bare.size() - 2)))), refused("no server name", 112));
}

TEST(ClientHelloReader, OneNameAndOneKindOfName) {
  const std::string one = number(0, 1) + counted(2, "a.example");
  const std::string two = number(0, 1) + counted(2, "b.example");
  EXPECT_EQ(read_split(hello(extension(0, counted(2, one + two)))), refused("several server names", 47));
  EXPECT_EQ(read_split(hello(extension(0, counted(2, number(1, 1) + counted(2, "a.example"))))), refused("bad server name", 112));
  EXPECT_EQ(read_split(hello(server_name("a.example") + server_name("b.example"))), refused("the same extension twice", 47));
  const std::string empty = number(0, 1) + counted(2, "");
  for (const std::string& malformed : {std::string(), counted(2, ""), counted(2, one) + "x", counted(2, one.substr(0, 5)),
                                       counted(2, empty), number(100, 2) + one, one})
    EXPECT_EQ(read_split(hello(extension(0, malformed))), refused("malformed server name", 50));
}

TEST(ClientHelloReader, ProtocolsAreListedAsOffered) {
  const std::string name = server_name("a.example");
  EXPECT_EQ(read_split(hello(name + alpn({"acme-tls/1"}))), named("a.example", {"acme-tls/1"}));
  const std::vector<std::string> odd = {"h2", std::string("\0\xff", 2), std::string(255, 'x'), "h2"};
  EXPECT_EQ(read_split(hello(alpn(odd) + name)), named("a.example", odd));
  const std::vector<std::string> most(kMostAlpnNames, "h2");
  EXPECT_EQ(read_split(hello(name + alpn(most))), named("a.example", most));
  const std::vector<std::string> more(kMostAlpnNames + 1, "h2");
  EXPECT_EQ(read_split(hello(name + alpn(more))), refused("too many ALPN names", 40));
  const std::string one = counted(1, "h2");
  for (const std::string& malformed : {std::string(), counted(2, ""), counted(2, number(0, 1)), counted(2, one) + "x",
                                       counted(2, number(3, 1) + "h2"), number(9, 2) + one})
    EXPECT_EQ(read_split(hello(name + extension(16, malformed))), refused("malformed ALPN", 50));
}

TEST(ClientHelloReader, TheOuterNameOfAnEncryptedHelloIsUsed) {
  const std::string outer = number(0, 1) + number(1, 2) + number(1, 2) + number(7, 1) + counted(2, "key") + counted(2, "payload");
  const std::string extensions = extension(0xfe0d, outer) + server_name("public.example");
  EXPECT_EQ(read_split(hello(extensions)), named("public.example", {}, 0x0303, true));
}

TEST(ClientHelloReader, TheNewestVersionIsNoted) {
  const std::string name = server_name("a.example");
  const auto versions = [&](const std::string& list) { return read_split(hello(name + extension(43, counted(1, list)))); };
  EXPECT_EQ(versions(number(0x0304, 2)), named("a.example", {}, 0x0304));
  EXPECT_EQ(versions(number(0x0303, 2) + number(0x0304, 2) + number(0xfafa, 2)), named("a.example", {}, 0x0304));
  EXPECT_EQ(versions(number(0x7f17, 2) + number(0x0302, 2)), named("a.example", {}, 0x0302));
  EXPECT_EQ(versions(number(0x0a0a, 2)), named("a.example", {}, 0x0303));
  EXPECT_EQ(versions({}), refused("malformed versions", 50));
  EXPECT_EQ(versions("123"), refused("malformed versions", 50));
  std::string old = body(name);
  old[1] = 0;
  EXPECT_EQ(read_split(records(number(1, 1) + counted(3, old))), refused("too old a version", 70));
}

TEST(ClientHelloReader, RandomExtensionsOfTolerantClientsAreSkipped) {
  std::string extensions;
  for (size_t value = 0x0a0a; value <= 0xfafa; value += 0x1010) extensions += extension(value, std::string(value % 3, 'g'));
  EXPECT_EQ(read_split(hello(extensions + server_name("a.example"))), named("a.example"));
  EXPECT_EQ(read_split(hello(extensions + server_name("a.example") + extension(0x0a0a, {}))),
            refused("the same extension twice", 47));
}

TEST(ClientHelloReader, WhatIsNotTlsGetsNoAnswer) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"), std::string("\x05\x01\x00", 3), std::string("SSH-2.0-x\r\n"),
        std::string("EHLO a.example\r\n"), std::string(3, '\0'), std::string("\x16\x02\x00\x00\x10", 5),
        std::string("\xff\xff\xff\xff"), std::string("\x19\x03")})
    EXPECT_EQ(read_split(bytes), refused("not TLS", 0)) << bytes;
}

TEST(ClientHelloReader, OldFramesAreToldThatTheirVersionIsGone) {
  // SSL 2.0, and a TLS 1.0 hello in its frame.
  EXPECT_EQ(read_split(std::string("\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10", 11)), refused("SSLv2 hello", 70));
  EXPECT_EQ(read_split(std::string("\x80\x55\x01\x03\x01\x00\x3c\x00\x00\x00\x10", 11)), refused("SSLv2 hello", 70));
}

TEST(ClientHelloReader, OtherRecordsBeforeOrInsideTheHelloAreRefused) {
  const std::string whole = message(usual_extensions());
  const std::string alert = record(std::string("\1\0", 2), 21);
  EXPECT_EQ(read_split(alert + hello(usual_extensions())), refused("an alert", 0));
  EXPECT_EQ(read_split(record("\1", 20) + hello(usual_extensions())), refused("unexpected record", 10));
  EXPECT_EQ(read_split(record("data", 23)), refused("unexpected record", 10));
  const std::string begun = records(whole.substr(0, 100));
  const std::string rest = records(whole.substr(100));
  EXPECT_EQ(read_split(begun + alert + rest), refused("unexpected record", 0));
  EXPECT_EQ(read_split(begun + record("\1", 20) + rest), refused("unexpected record", 10));
  EXPECT_EQ(read_split(begun + "GET / HTTP/1.1"), refused("unexpected record", 10));
  EXPECT_EQ(read_split(begun + record(whole.substr(100), 22, 0x0201)), refused("wrong record version", 70));
  // Another handshake message: a ServerHello.
  EXPECT_EQ(read_split(record(number(2, 1) + counted(3, body({})))), refused("not a ClientHello", 10));
}

TEST(ClientHelloReader, LengthsMustFitExactly) {
  const std::string good = body(usual_extensions());
  const auto read = [](const std::string& bytes) { return read_split(records(number(1, 1) + counted(3, bytes))); };
  ASSERT_EQ(read(good), kUsual);
  const Outcome malformed = refused("malformed hello", 50);
  EXPECT_EQ(read(good + "x"), malformed);
  for (size_t size = 0; size < good.size(); ++size) {
    // What ends before the extensions is a hello without them.
    const bool bare = size == good.size() - usual_extensions().size() - 2;
    EXPECT_EQ(read(good.substr(0, size)), bare ? refused("no server name", 112) : malformed) << size;
  }
  const std::string head = number(0x0303, 2) + std::string(32, 'r');
  const std::string extensions = counted(2, server_name("a.example"));
  const std::string suites = counted(2, number(0x1301, 2));
  const std::string compressions = counted(1, number(0, 1));
  ASSERT_EQ(read(head + counted(1, "") + suites + compressions + extensions), named("a.example"));
  EXPECT_EQ(read(head + counted(1, std::string(33, 's')) + suites + compressions + extensions), malformed);
  EXPECT_EQ(read(head + counted(1, "") + counted(2, "") + compressions + extensions), malformed);
  EXPECT_EQ(read(head + counted(1, "") + counted(2, "abc") + compressions + extensions), malformed);
  EXPECT_EQ(read(head + counted(1, "") + suites + counted(1, "") + extensions), malformed);
  EXPECT_EQ(read(head + counted(1, "") + suites + compressions + counted(2, server_name("a.example") + "xyz")), malformed);
}

TEST(ClientHelloReader, AnyByteMayLie) {
  for (const size_t piece : {16'384, 50}) {
    const std::string good = records(message(usual_extensions()), piece);
    for (size_t at = 0; at < good.size(); ++at) {
      for (const char lie : {'\0', '\xff', static_cast<char>(good[at] ^ 1)}) {
        std::string bytes = good;
        bytes[at] = lie;
        const Outcome outcome = read_split(bytes);
        if (outcome.state == State::kDone) {
          EXPECT_FALSE(outcome.hello.server_name.empty());
        }
        EXPECT_EQ(outcome.state == State::kRefused, !outcome.reason.empty());
      }
    }
  }
}

TEST(ClientHelloReader, AnAlertIsARecordOfSevenBytes) {
  EXPECT_EQ(make_alert_record(112), std::string("\x15\x03\x03\x00\x02\x02\x70", 7));
  EXPECT_EQ(make_alert_record(255), std::string("\x15\x03\x03\x00\x02\x02\xff", 7));
}

// Captures of real clients: the bytes that the client of the first connection sent.

size_t little_endian(std::string_view bytes, size_t at) {
  size_t value = 0;
  for (size_t index = 4; index-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes.at(at + index));
  return value;
}
size_t big_endian(std::string_view bytes, size_t at, size_t width) {
  size_t value = 0;
  for (size_t index = 0; index < width; ++index) value = value << 8 | static_cast<uint8_t>(bytes.at(at + index));
  return value;
}

struct Segment {
  std::string flow;  // addresses and ports
  uint32_t sequence = 0;
  bool begins = false;
  std::string_view payload;
};

std::optional<Segment> tcp_segment(std::string_view packet, size_t link_type) {
  if (link_type == 1) {  // Ethernet: two addresses and a type
    const size_t type = big_endian(packet, 12, 2);
    if (type != 0x0800 && type != 0x86dd) return std::nullopt;
    packet.remove_prefix(14);
  } else if (link_type == 0) {  // loopback
    packet.remove_prefix(4);
  }
  const bool v6 = big_endian(packet, 0, 1) >> 4 == 6;
  const size_t header = v6 ? 40 : (big_endian(packet, 0, 1) & 15) * 4;
  // What fills a short frame up is not of the packet.
  const size_t size = v6 ? 40 + big_endian(packet, 4, 2) : big_endian(packet, 2, 2);
  if (big_endian(packet, v6 ? 6 : 9, 1) != 6) return std::nullopt;
  Segment out;
  out.flow = v6 ? packet.substr(8, 32) : packet.substr(12, 8);
  const std::string_view tcp = packet.substr(0, size).substr(header);
  out.flow += tcp.substr(0, 4);
  out.sequence = static_cast<uint32_t>(big_endian(tcp, 4, 4));
  out.begins = (big_endian(tcp, 13, 1) & 0x12) == 2;
  out.payload = tcp.substr((big_endian(tcp, 12, 1) >> 4) * 4);
  return out;
}

std::string client_bytes(std::string_view capture) {
  EXPECT_EQ(little_endian(capture, 0), 0xa1b2c3d4u);
  const size_t link_type = little_endian(capture, 20);
  std::string flow;
  uint32_t first = 0;
  std::map<uint32_t, std::string_view> payloads;
  for (size_t at = 24; at < capture.size();) {
    const size_t size = little_endian(capture, at + 8);
    const auto segment = tcp_segment(capture.substr(at + 16, size), link_type);
    at += 16 + size;
    if (!segment) continue;
    if (flow.empty() && segment->begins) {
      flow = segment->flow;
      first = segment->sequence + 1;
    } else if (segment->flow == flow && !segment->payload.empty()) {
      payloads.emplace(segment->sequence - first, segment->payload);
    }
  }
  std::string out;
  for (const auto& [offset, payload] : payloads) {
    if (offset > out.size()) break;
    if (offset + payload.size() > out.size()) out += payload.substr(out.size() - offset);
  }
  return out;
}

std::string unpacked(const std::string& path) {
  std::string out;
  FILE* pipe = ::popen(("gzip -dc '" + path + "'").c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[4'096];
  for (size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, got);
  ::pclose(pipe);
  return out;
}

struct Capture {
  std::string file;
  size_t bytes;  // of the client
  Outcome outcome;
};

TEST(ClientHelloReader, ReadsWhatRealClientsSend) {
  const std::filesystem::path folder = std::filesystem::path(POCKETFLEET_SOURCE_DIR) / ".." / "shared" / "data" / "tls";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "the captures are not here: " << folder;
  const Outcome nameless = refused("no server name", 112);
  const std::vector<std::string> http = {"h2", "http/1.1"};
  const std::vector<Capture> captures = {
      {"illustrated_tls13.pcap", 359, named("example.ulfheim.net", {}, 0x0304)},
      {"illustrated_tls13_clienthello.bin", 253, named("example.ulfheim.net", {}, 0x0304)},
      {"tldrfail_pq_clienthello_record.bin", 1'474, named("example.com", {}, 0x0304)},
      {"zeek_cert-no-cn.pcap", 420, nameless},
      {"zeek_chrome-1250-tls-x25519-kyber.pcap", 1'830, named("lh3.google.com", http, 0x0304, true)},
      {"zeek_chrome-34-google.pcap", 1'220, named("google.de", {"spdy/3", "spdy/3.1", "http/1.1"})},
      {"zeek_chrome-63.0.3211.0-canary-tls_experiment.pcap", 581, named("tls.ctf.network", http)},
      {"zeek_ecdhe.pcap", 420, nameless},
      {"zeek_hrr.pcap", 584, nameless},
      {"zeek_https-to-http.pcap", 517, nameless},
      {"zeek_smtp-starttls.pcap", 823, refused("not TLS", 0)},
      {"zeek_ssl-v2.pcap", 448, refused("SSLv2 hello", 70)},
      {"zeek_ssl.v3.pcap", 4'879, refused("SSLv2 hello", 70)},
      {"zeek_tls-13draft19-early-data.pcap", 342, nameless},
      {"zeek_tls-conn-with-extensions.pcap", 952, named("ssl.gstatic.com", {}, 0x0301)},
      {"zeek_tls-early-alert.pcap", 853, named("jeffbryner.com", {"h2", "spdy/3.1", "http/1.1"})},
      {"zeek_tls-fragmented-handshake.pcap.gz", 186, refused("an address as server name", 112)},
      {"zeek_tls13_psk_succesfull.pcap", 520, nameless},
      {"zeek_tls13_wolfssl.pcap", 400, nameless},
      {"zeek_tls13draft16-ff52.a01.pcap", 524, nameless},
      {"zeek_tls13draft23-chrome67.0.3368.0-canary.pcap", 581, named("tls13.crypto.mozilla.org", http)},
      {"zeek_tls1_1.pcap", 403, nameless},
  };
  for (const Capture& capture : captures) {
    const std::string path = (folder / capture.file).string();
    std::string bytes = capture.file.ends_with(".gz") ? unpacked(path) : read_file(path, 1u << 20).value_or("");
    if (!capture.file.ends_with(".bin") && !bytes.empty()) bytes = client_bytes(bytes);
    EXPECT_EQ(bytes.size(), capture.bytes) << capture.file;
    EXPECT_EQ(read_split(bytes), capture.outcome) << capture.file;
  }
}

}  // namespace
}  // namespace pocketfleet::tunnel
