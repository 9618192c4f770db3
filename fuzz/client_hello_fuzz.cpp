// The reader of ClientHellos must give the same result for every split of the bytes, lose none of them, and let no name through
// that is none. The first byte chooses the split. Seeds: `tldrfail` has the hello that https://tldr.fail publishes (Apache-2.0),
// `illustrated` that of The Illustrated TLS 1.3 Connection (MIT); the others are our own.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tunnel/client_hello.h"

namespace {

using pocketfleet::tunnel::ClientHelloReader;
using pocketfleet::tunnel::kMostAlpnNames;
using pocketfleet::tunnel::kMostHelloBytes;
using State = ClientHelloReader::State;

ClientHelloReader read(std::string_view bytes, size_t piece) {
  ClientHelloReader reader;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const State before = reader.state();
    const State after = reader.push(bytes.substr(at, piece));
    if (before != State::kNeedMore && after != before) std::abort();
    if (after == State::kNeedMore && reader.buffered().size() >= kMostHelloBytes) std::abort();
  }
  if (reader.state() != State::kRefused && reader.buffered() != bytes) std::abort();
  if ((reader.state() == State::kRefused) == reader.reason().empty()) std::abort();
  return reader;
}

void check_hello(const ClientHelloReader& reader) {
  const std::string& name = reader.hello().server_name;
  if (name.empty() || name.size() > 253 || name.front() == '.' || name.back() == '.') std::abort();
  if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_.") != std::string::npos) std::abort();
  if (reader.hello().alpn.size() > kMostAlpnNames || reader.hello().version < 0x0300) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const ClientHelloReader whole = read(bytes, bytes.size() + 1);
  const ClientHelloReader split = read(bytes, 1 + data[0] % 64);
  if (whole.state() != split.state() || whole.hello() != split.hello() || whole.reason() != split.reason() ||
      whole.alert() != split.alert())
    std::abort();
  if (whole.state() == State::kDone) check_hello(whole);
  return 0;
}
