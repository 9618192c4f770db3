#include "cli/serve_rules.h"

#include <arpa/inet.h>

#include "crypto/digest.h"

namespace pocketfleet::cli {

bool is_loopback(std::string_view host) {
  if (host == "localhost") return true;
  const std::string text(host);
  in_addr v4{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string model_name_of(std::string_view path) {
  path = path.substr(path.find_last_of('/') + 1);
  constexpr std::string_view kEnding = ".gguf";
  if (path.size() > kEnding.size() && path.ends_with(kEnding)) path.remove_suffix(kEnding.size());
  return std::string(path);
}

std::string default_checkpoint_folder(std::string_view absolute_model_path, std::string_view xdg_cache, std::string_view home) {
  std::string folder;
  if (xdg_cache.starts_with('/')) {
    folder = xdg_cache;
  } else if (home.starts_with('/')) {
    folder = std::string(home) + "/.cache";
  } else {
    return {};
  }
  return folder + "/pocketfleet/checkpoints/" + to_hex(sha256(absolute_model_path)).substr(0, 16);
}

std::string url_of(std::string_view host, int port) {
  const bool v6 = host.find(':') != std::string_view::npos;
  return "http://" + (v6 ? "[" + std::string(host) + "]" : std::string(host)) + ":" + std::to_string(port);
}

}  // namespace pocketfleet::cli
