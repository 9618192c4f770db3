#include "tunnel/proxy_header.h"

#include <arpa/inet.h>

#include <charconv>

namespace pocketfleet::tunnel {

namespace {

constexpr std::string_view kSignature("\r\n\r\n\0\r\nQUIT\n", 12);
constexpr size_t kFixedBytes = 16;
constexpr unsigned char kVersion2 = 0x20;
constexpr unsigned char kLocal = 0x00, kProxy = 0x01;
constexpr unsigned char kTcp4 = 0x11, kTcp6 = 0x21;
constexpr size_t kBytes4 = 12, kBytes6 = 36;

// The bytes of an address of that family; empty when it is of none.
std::string address_bytes(int family, const std::string& host) {
  std::string out(family == AF_INET ? 4 : 16, '\0');
  return ::inet_pton(family, host.c_str(), out.data()) == 1 ? out : std::string();
}

std::string address_text(int family, const char* bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(family, bytes, text, sizeof text);
  return text;
}

void append_u16(std::string& out, size_t value) {
  out.push_back(static_cast<char>(value >> 8));
  out.push_back(static_cast<char>(value & 0xff));
}

uint16_t u16(std::string_view bytes, size_t at) {
  return static_cast<uint16_t>(static_cast<unsigned char>(bytes[at]) << 8 | static_cast<unsigned char>(bytes[at + 1]));
}

}  // namespace

ProxyAddress proxy_address_of(std::string_view peer) {
  const size_t colon = peer.rfind(':');
  if (colon == std::string_view::npos) return {};
  std::string_view host = peer.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string_view digits = peer.substr(colon + 1);
  ProxyAddress out;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
  if (ec != std::errc() || end != digits.data() + digits.size()) return {};
  out.host = host;
  if (address_bytes(AF_INET, out.host).empty() && address_bytes(AF_INET6, out.host).empty()) return {};
  return out;
}

std::string make_proxy_header(const ProxyAddress& from, const ProxyAddress& to) {
  std::string out(kSignature);
  int family = AF_INET;
  std::string source = address_bytes(AF_INET, from.host);
  if (source.empty()) {
    family = AF_INET6;
    source = address_bytes(AF_INET6, from.host);
  }
  if (source.empty()) {
    out.push_back(static_cast<char>(kVersion2 | kLocal));
    out.push_back('\0');
    append_u16(out, 0);
    return out;
  }
  std::string target = address_bytes(family, to.host);
  const uint16_t target_port = target.empty() ? uint16_t{0} : to.port;
  if (target.empty()) target.assign(source.size(), '\0');
  out.push_back(static_cast<char>(kVersion2 | kProxy));
  out.push_back(static_cast<char>(family == AF_INET ? kTcp4 : kTcp6));
  append_u16(out, family == AF_INET ? kBytes4 : kBytes6);
  out += source + target;
  append_u16(out, from.port);
  append_u16(out, target_port);
  return out;
}

Result<ProxyHeader> read_proxy_header(std::string_view bytes) {
  const auto wrong = [](const char* what) {
    return fail(ErrorCode::kProtocol, std::string("the PROXY header is wrong: ") + what);
  };
  ProxyHeader header;
  if (bytes.substr(0, kSignature.size()) != kSignature.substr(0, bytes.size())) return wrong("it does not begin like one");
  if (bytes.size() < kFixedBytes) return header;
  const auto version_command = static_cast<unsigned char>(bytes[12]);
  if ((version_command & 0xf0) != kVersion2) return wrong("it is not of version 2");
  const size_t length = u16(bytes, 14);
  if (kFixedBytes + length > kMostProxyHeaderBytes) return wrong("it is too long");
  if (bytes.size() < kFixedBytes + length) return header;
  const std::string_view rest = bytes.substr(kFixedBytes, length);
  const auto family = static_cast<unsigned char>(bytes[13]);
  if ((version_command & 0x0f) == kProxy) {
    if (family == kTcp4) {
      if (rest.size() < kBytes4) return wrong("its addresses are cut short");
      header.from = {address_text(AF_INET, rest.data()), u16(rest, 8)};
    } else if (family == kTcp6) {
      if (rest.size() < kBytes6) return wrong("its addresses are cut short");
      header.from = {address_text(AF_INET6, rest.data()), u16(rest, 32)};
    }
  } else if ((version_command & 0x0f) != kLocal) {
    return wrong("its command is unknown");
  }
  header.size = kFixedBytes + length;
  return header;
}

}  // namespace pocketfleet::tunnel
