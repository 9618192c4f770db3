// Reads the ClientHello, the first message of a TLS connection, to learn which server is wanted; no TLS is spoken here. Pure and
// incremental: any split of the bytes, over any number of records, gives the same result. The raw bytes are held, for whoever
// ends the TLS: at most kMostHelloBytes and the last push. The deadline is the caller's. One thread. Nothing fails: a stranger's
// bytes are refused with a short reason and the TLS alert to answer with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pocketfleet::tunnel {

// Of raw bytes, record headers included, until the hello is whole. Real ones have 0.2 to 3 KiB.
inline constexpr size_t kMostHelloBytes = 16u << 10;
inline constexpr size_t kMostAlpnNames = 32;

struct ClientHello {
  std::string server_name;        // in lower case, without a dot at the end
  std::vector<std::string> alpn;  // as offered
  bool ech = false;               // has an encrypted hello inside: server_name is the outer one
  uint16_t version = 0;           // the newest that is offered: 0x0303 is TLS 1.2, 0x0304 TLS 1.3
  bool operator==(const ClientHello&) const = default;
};

class ClientHelloReader {
 public:
  enum class State { kNeedMore, kDone, kRefused };

  // Bytes that come after kDone are kept with the others; after kRefused they are dropped.
  State push(std::string_view bytes);
  State state() const { return state_; }

  // Once kDone.
  const ClientHello& hello() const { return hello_; }
  // Once kRefused: one of a few fixed texts, for logs and metrics.
  std::string_view reason() const { return reason_; }
  // Once kRefused: the alert to send, 0 for none, as for what is no TLS at all.
  uint8_t alert() const { return alert_; }

  // All bytes pushed so far, with what followed the hello.
  const std::string& buffered() const { return buffer_; }
  // The same, to be passed on; the reader takes no more then.
  std::string take() { return std::exchange(buffer_, {}); }

 private:
  void scan(std::string_view raw);
  bool take_record_header(std::string_view raw);
  void take_payload(std::string_view raw);
  void finish(std::string_view raw);
  void refuse(std::string_view reason, uint8_t alert);

  std::string buffer_;
  State state_ = State::kNeedMore;
  ClientHello hello_;
  std::string_view reason_;
  uint8_t alert_ = 0;

  size_t at_ = 0;           // how far the raw bytes have been read
  size_t record_left_ = 0;  // of the record that is being read
  // Begun so far, with and without bytes in them.
  size_t full_records_ = 0;
  size_t empty_records_ = 0;
  // Of the handshake message: type and length, and what follows them.
  uint32_t head_ = 0;
  size_t head_bytes_ = 0;
  size_t body_bytes_ = 0;
  size_t body_left_ = 0;
};

// A fatal alert in a record of its own, 7 bytes.
std::string make_alert_record(uint8_t alert);

}  // namespace pocketfleet::tunnel
