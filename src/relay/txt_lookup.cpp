#include "relay/txt_lookup.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>

#include <algorithm>

namespace pocketfleet::relay {

namespace {

constexpr int kAnswerBytes = 16 << 10;
constexpr int kTimeoutS = 2;
constexpr int kTries = 2;
constexpr size_t kMostStrings = 256;

Result<void> use_server(struct __res_state& state, const std::string& server) {
  if (server.empty()) return {};
  const size_t colon = server.find(':');
  const std::string port = colon == std::string::npos ? "53" : server.substr(colon + 1);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const bool number =
      !port.empty() && port.size() <= 5 && std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!number || std::stoi(port) > 65'535 || ::inet_pton(AF_INET, server.substr(0, colon).c_str(), &address.sin_addr) != 1)
    return fail(ErrorCode::kInvalidArgument, "\"" + server + "\" is no name server: give an IPv4 address, with :PORT or without");
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
  state.nscount = 1;
  state.nsaddr_list[0] = address;
  return {};
}

}  // namespace

std::vector<std::string> txt_in_answer(const unsigned char* answer, size_t size) {
  std::vector<std::string> out;
  ns_msg message;
  if (size > 65'535 || ::ns_initparse(answer, static_cast<int>(size), &message) != 0) return out;
  for (int i = 0; i < ns_msg_count(message, ns_s_an); ++i) {
    ns_rr record;
    if (::ns_parserr(&message, ns_s_an, i, &record) != 0) break;
    if (ns_rr_type(record) != ns_t_txt) continue;
    const unsigned char* data = ns_rr_rdata(record);
    const size_t length = ns_rr_rdlen(record);
    for (size_t at = 0; at < length;) {
      const size_t count = data[at];
      if (at + 1 + count > length || out.size() >= kMostStrings) return out;
      out.emplace_back(reinterpret_cast<const char*>(data) + at + 1, count);
      at += 1 + count;
    }
  }
  return out;
}

Result<std::vector<std::string>> lookup_txt(const std::string& name, const std::string& server) {
  struct __res_state state {};
  if (::res_ninit(&state) != 0) return fail(ErrorCode::kUnavailable, "the system's resolver cannot be set up");
  state.retrans = kTimeoutS;
  state.retry = kTries;
  const auto used = use_server(state, server);
  if (!used) {
    ::res_nclose(&state);
    return fail(used.error());
  }
  std::vector<unsigned char> answer(kAnswerBytes);
  const int size = ::res_nquery(&state, name.c_str(), ns_c_in, ns_t_txt, answer.data(), kAnswerBytes);
  const int why = state.res_h_errno;
  ::res_nclose(&state);
  if (size < 0) {
    if (why == HOST_NOT_FOUND || why == NO_DATA) return std::vector<std::string>();
    return fail(ErrorCode::kUnavailable, "no name server answers for the TXT records of " + name);
  }
  return txt_in_answer(answer.data(), static_cast<size_t>(std::min(size, kAnswerBytes)));
}

}  // namespace pocketfleet::relay
