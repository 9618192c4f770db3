#include "tunnel/client_hello.h"

#include <algorithm>
#include <optional>

namespace pocketfleet::tunnel {

namespace {

// Of a record (RFC 8446, 5.1).
constexpr size_t kRecordHeaderBytes = 5;
constexpr size_t kMostRecordBytes = 1u << 14;
constexpr uint8_t kFirstContentType = 20;
constexpr uint8_t kAlertRecord = 21;
constexpr uint8_t kHandshakeRecord = 22;
constexpr uint8_t kLastContentType = 24;
constexpr uint8_t kMajorVersion = 3;
// They are forbidden, but libraries forgive a few; without a bound they would be a way to say nothing for long.
constexpr size_t kMostEmptyRecords = 16;

// Of the message (RFC 8446, 4.1.2).
constexpr size_t kMessageHeaderBytes = 4;
constexpr uint32_t kClientHelloType = 1;
constexpr size_t kRandomBytes = 32;
constexpr size_t kMostSessionIdBytes = 32;
constexpr uint32_t kOldestVersion = 0x0301;

constexpr uint32_t kServerNameExtension = 0;
constexpr uint32_t kAlpnExtension = 16;
constexpr uint32_t kSupportedVersionsExtension = 43;
constexpr uint32_t kEchExtension = 0xfe0d;
constexpr uint32_t kHostName = 0;

constexpr size_t kMostNameBytes = 253;
constexpr size_t kMostLabelBytes = 63;

enum Alert : uint8_t {
  kNoAnswer = 0,
  kUnexpectedMessage = 10,
  kRecordOverflow = 22,
  kHandshakeFailure = 40,
  kIllegalParameter = 47,
  kDecodeError = 50,
  kProtocolVersion = 70,
  kUnrecognizedName = 112,
};

struct Fault {
  std::string_view reason;
  Alert alert;
};

constexpr Fault kMalformedHello = {"malformed hello", kDecodeError};
constexpr Fault kMalformedName = {"malformed server name", kDecodeError};
constexpr Fault kMalformedAlpn = {"malformed ALPN", kDecodeError};
constexpr Fault kMalformedVersions = {"malformed versions", kDecodeError};
constexpr Fault kOldVersion = {"too old a version", kProtocolVersion};
constexpr Fault kTwiceTheSame = {"the same extension twice", kIllegalParameter};
constexpr Fault kSeveralNames = {"several server names", kIllegalParameter};
constexpr Fault kNoName = {"no server name", kUnrecognizedName};
constexpr Fault kBadName = {"bad server name", kUnrecognizedName};
constexpr Fault kAddress = {"an address as server name", kUnrecognizedName};
constexpr Fault kTooManyNames = {"too many ALPN names", kHandshakeFailure};

uint8_t byte_at(std::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}

// Takes fields off the front of bytes. Once one is not there whole, ok() is false and everything after it reads as empty.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : left_(bytes) {}

  bool ok() const { return ok_; }
  bool more() const { return !left_.empty(); }

  std::string_view bytes(size_t count) {
    if (count > left_.size()) {
      ok_ = false;
      left_ = {};
      return {};
    }
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  uint32_t number(size_t width) {
    uint32_t value = 0;
    for (const char byte : bytes(width)) value = value << 8 | static_cast<uint8_t>(byte);
    return value;
  }
  // Bytes behind their count, a number of `width` bytes.
  std::string_view vector(size_t width) {
    const size_t count = number(width);
    return bytes(count);
  }
  // All taken, and nothing missing.
  bool ended() const { return ok_ && left_.empty(); }

 private:
  std::string_view left_;
  bool ok_ = true;
};

// A name of DNS in lower case. The underscore is in no host name, but in names that people use.
std::optional<Fault> normalise_name(std::string_view name, std::string& out) {
  if (name.ends_with('.')) name.remove_suffix(1);
  if (name.size() > kMostNameBytes) return kBadName;
  std::string lower;
  size_t label = 0;
  bool digits = true;
  for (char c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool digit = c >= '0' && c <= '9';
    if (c == '.') {
      if (label == 0) return kBadName;
      label = 0;
      digits = true;
    } else if (digit || (c >= 'a' && c <= 'z') || c == '-' || c == '_') {
      if (++label > kMostLabelBytes) return kBadName;
      digits = digits && digit;
    } else {
      return kBadName;
    }
    lower.push_back(c);
  }
  if (label == 0) return kBadName;
  // No name ends in a number; what does is an address (RFC 6066 forbids them here). Those of IPv6 have colons.
  if (digits) return kAddress;
  out = std::move(lower);
  return std::nullopt;
}

std::optional<Fault> read_server_name(std::string_view data, ClientHello& hello) {
  Fields extension(data);
  Fields list(extension.vector(2));
  const uint32_t type = list.number(1);
  const std::string_view name = list.vector(2);
  if (!extension.ended() || !list.ok() || name.empty()) return kMalformedName;
  if (list.more()) return kSeveralNames;
  if (type != kHostName) return kBadName;
  return normalise_name(name, hello.server_name);
}

std::optional<Fault> read_alpn(std::string_view data, ClientHello& hello) {
  Fields extension(data);
  Fields list(extension.vector(2));
  if (!extension.ended() || !list.more()) return kMalformedAlpn;
  while (list.more()) {
    const std::string_view name = list.vector(1);
    if (!list.ok() || name.empty()) return kMalformedAlpn;
    if (hello.alpn.size() == kMostAlpnNames) return kTooManyNames;
    hello.alpn.emplace_back(name);
  }
  return std::nullopt;
}

std::optional<Fault> read_versions(std::string_view data, ClientHello& hello) {
  Fields extension(data);
  Fields list(extension.vector(1));
  if (!extension.ended() || !list.more()) return kMalformedVersions;
  uint32_t newest = 0;
  while (list.more()) {
    const uint32_t version = list.number(2);
    // Drafts, and the numbers that only keep servers tolerant (RFC 8701), have other first bytes.
    if (version >> 8 == kMajorVersion) newest = std::max(newest, version);
  }
  if (!list.ok()) return kMalformedVersions;
  if (newest != 0) hello.version = static_cast<uint16_t>(newest);
  return std::nullopt;
}

std::optional<Fault> read_hello(std::string_view body, ClientHello& hello) {
  Fields fields(body);
  const uint32_t version = fields.number(2);
  fields.bytes(kRandomBytes);
  const std::string_view session_id = fields.vector(1);
  const std::string_view suites = fields.vector(2);
  const std::string_view compressions = fields.vector(1);
  if (!fields.ok() || session_id.size() > kMostSessionIdBytes || suites.empty() || suites.size() % 2 != 0 || compressions.empty())
    return kMalformedHello;
  if (version < kOldestVersion) return kOldVersion;
  hello.version = static_cast<uint16_t>(version);
  // The first versions of TLS had no extensions.
  if (!fields.more()) return kNoName;

  Fields extensions(fields.vector(2));
  if (!fields.ended()) return kMalformedHello;
  std::vector<uint32_t> types;
  while (extensions.more()) {
    const uint32_t type = extensions.number(2);
    const std::string_view data = extensions.vector(2);
    if (!extensions.ok()) return kMalformedHello;
    types.push_back(type);
    std::optional<Fault> fault;
    if (type == kServerNameExtension) fault = read_server_name(data, hello);
    if (type == kAlpnExtension) fault = read_alpn(data, hello);
    if (type == kSupportedVersionsExtension) fault = read_versions(data, hello);
    if (type == kEchExtension) hello.ech = true;
    if (fault) return fault;
  }
  std::sort(types.begin(), types.end());
  if (std::adjacent_find(types.begin(), types.end()) != types.end()) return kTwiceTheSame;
  if (hello.server_name.empty()) return kNoName;
  return std::nullopt;
}

// What the records from the beginning of `raw` hold, `bytes` of it or a little more.
std::string join_records(std::string_view raw, size_t bytes) {
  std::string joined;
  joined.reserve(bytes);
  for (size_t at = 0; joined.size() < bytes;) {
    const size_t length = size_t{byte_at(raw, at + 3)} << 8 | byte_at(raw, at + 4);
    joined.append(raw.substr(at + kRecordHeaderBytes, length));
    at += kRecordHeaderBytes + length;
  }
  return joined;
}

}  // namespace

ClientHelloReader::State ClientHelloReader::push(std::string_view bytes) {
  if (state_ == State::kRefused) return state_;
  buffer_.append(bytes);
  if (state_ == State::kNeedMore) scan(std::string_view(buffer_).substr(0, kMostHelloBytes));
  return state_;
}

// Every check is made at a certain byte, in the order of the bytes: so the result does not depend on how they came. What has been
// scanned is not looked at again until the message is whole.
void ClientHelloReader::scan(std::string_view raw) {
  while (state_ == State::kNeedMore && at_ < raw.size()) {
    if (record_left_ > 0) {
      take_payload(raw);
    } else if (!take_record_header(raw)) {
      break;
    }
  }
  if (state_ == State::kNeedMore && raw.size() == kMostHelloBytes) refuse("too large", kHandshakeFailure);
}

// False when the header is not whole yet, or refused.
bool ClientHelloReader::take_record_header(std::string_view raw) {
  const std::string_view header = raw.substr(at_, kRecordHeaderBytes);
  const auto refused = [this](std::string_view reason, uint8_t alert) {
    refuse(reason, alert);
    return false;
  };
  const uint8_t type = byte_at(header, 0);
  if (at_ == 0) {
    // SSL 2.0 has another frame: a length whose first bit is set, then the type of the message.
    if ((type & 0x80) != 0) {
      if (header.size() < 3) return false;
      if (byte_at(header, 2) == kClientHelloType) return refused("SSLv2 hello", kProtocolVersion);
    }
    if (type < kFirstContentType || type > kLastContentType) return refused("not TLS", kNoAnswer);
    if (header.size() < 2) return false;
    if (byte_at(header, 1) != kMajorVersion) return refused("not TLS", kNoAnswer);
    // An alert is not answered with another.
    if (type == kAlertRecord) return refused("an alert", kNoAnswer);
  }
  if (type != kHandshakeRecord) return refused("unexpected record", type == kAlertRecord ? kNoAnswer : kUnexpectedMessage);
  if (header.size() < 2) return false;
  if (byte_at(header, 1) != kMajorVersion) return refused("wrong record version", kProtocolVersion);
  if (header.size() < kRecordHeaderBytes) return false;
  const size_t length = size_t{byte_at(header, 3)} << 8 | byte_at(header, 4);
  if (length > kMostRecordBytes) return refused("record too long", kRecordOverflow);
  if (length == 0 && ++empty_records_ > kMostEmptyRecords) return refused("empty records", kUnexpectedMessage);
  if (length > 0) ++full_records_;
  at_ += kRecordHeaderBytes;
  record_left_ = length;
  return true;
}

void ClientHelloReader::take_payload(std::string_view raw) {
  if (head_bytes_ < kMessageHeaderBytes) {
    head_ = head_ << 8 | byte_at(raw, at_);
    ++at_;
    --record_left_;
    ++head_bytes_;
    if (head_bytes_ == 1 && head_ != kClientHelloType) return refuse("not a ClientHello", kUnexpectedMessage);
    if (head_bytes_ < kMessageHeaderBytes) return;
    body_bytes_ = head_ & 0xffffff;
    body_left_ = body_bytes_;
    // It could not be whole in time, however few records there are.
    if (body_left_ > kMostHelloBytes - at_) return refuse("too large", kHandshakeFailure);
  } else {
    const size_t here = std::min({body_left_, record_left_, raw.size() - at_});
    at_ += here;
    record_left_ -= here;
    body_left_ -= here;
  }
  if (body_left_ == 0) finish(raw);
}

void ClientHelloReader::finish(std::string_view raw) {
  // In one record, as nearly always, the body is read where it lies.
  std::string joined;
  std::string_view body = raw.substr(at_ - body_bytes_, body_bytes_);
  if (full_records_ > 1) {
    joined = join_records(raw, kMessageHeaderBytes + body_bytes_);
    body = std::string_view(joined).substr(kMessageHeaderBytes, body_bytes_);
  }
  if (const auto fault = read_hello(body, hello_)) return refuse(fault->reason, fault->alert);
  state_ = State::kDone;
}

void ClientHelloReader::refuse(std::string_view reason, uint8_t alert) {
  state_ = State::kRefused;
  hello_ = ClientHello();
  reason_ = reason;
  alert_ = alert;
}

std::string make_alert_record(uint8_t alert) {
  // 0x0303 is what TLS 1.3 writes into every record of a server; older clients only look at the 3 until a version is agreed on.
  constexpr char kFatal = 2;
  return {static_cast<char>(kAlertRecord), 3, 3, 0, 2, kFatal, static_cast<char>(alert)};
}

}  // namespace pocketfleet::tunnel
