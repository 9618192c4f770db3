#include "net/url.h"

#include <algorithm>
#include <charconv>

namespace pocketfleet::net {

namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool has_control_or_space(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) <= 32 || c == 127; });
}

}  // namespace

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]);
      const int low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    if (c == '\0') return std::nullopt;
    out.push_back(c);
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> pairs;
  const auto decoded = [](std::string_view text) { return percent_decode(text, true).value_or(std::string(text)); };
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) {
      pairs.emplace_back(decoded(pair), "");
    } else {
      pairs.emplace_back(decoded(pair.substr(0, equals)), decoded(pair.substr(equals + 1)));
    }
  }
  return pairs;
}

std::string Url::authority() const {
  if (scheme == Scheme::kUnix) return "localhost";
  std::string out = host.find(':') != std::string::npos ? "[" + host + "]" : host;
  const uint16_t usual = scheme == Scheme::kHttps ? 443 : 80;
  if (port != usual) out += ":" + std::to_string(port);
  return out;
}

std::string Url::origin() const {
  switch (scheme) {
    case Scheme::kUnix:
      return "unix:" + host;
    case Scheme::kHttps:
      return "https://" + host + ":" + std::to_string(port);
    case Scheme::kHttp:
      break;
  }
  return "http://" + host + ":" + std::to_string(port);
}

Result<Url> parse_url(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::kInvalidArgument,
                "the URL \"" + std::string(text.substr(0, 200)) + "\" " + std::string(why) +
                    "; write http://host:port/path, https://host/path or unix:/path/of/socket",
                "url");
  };
  if (has_control_or_space(text)) return refuse("holds a space or a control character");
  Url url;
  std::string_view rest = text;
  if (rest.starts_with("unix:")) {
    url.scheme = Url::Scheme::kUnix;
    rest.remove_prefix(5);
    // A second colon parts the socket's path from the path of the request.
    const size_t colon = rest.find(":/");
    url.host = rest.substr(0, colon);
    if (colon != std::string_view::npos) url.target = rest.substr(colon + 1);
    if (url.host.empty()) return refuse("names no socket");
    if (url.host.size() > 107) return refuse("names a socket whose path is longer than 107 bytes");
    return url;
  }
  if (rest.starts_with("https://")) {
    url.scheme = Url::Scheme::kHttps;
    url.port = 443;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    url.port = 80;
    rest.remove_prefix(7);
  } else {
    return refuse("does not begin with http://, https:// or unix:");
  }
  const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, end);
  std::string_view target = rest.substr(end);
  target = target.substr(0, target.find('#'));
  if (!target.empty()) url.target = (target.front() == '/' ? "" : "/") + std::string(target);
  if (authority.find('@') != std::string_view::npos) return refuse("holds a user name, which is not supported");
  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return refuse("has no closing bracket after its address");
    url.host = authority.substr(1, close - 1);
    port = authority.substr(close + 1);
    if (!port.empty() && port.front() != ':') return refuse("has something other than a port after its address");
  } else {
    const size_t colon = authority.find(':');
    url.host = authority.substr(0, colon);
    if (colon != std::string_view::npos) port = authority.substr(colon);
  }
  if (url.host.empty()) return refuse("names no host");
  if (!port.empty()) {
    unsigned value = 0;
    const auto [after, error] = std::from_chars(port.data() + 1, port.data() + port.size(), value);
    if (error != std::errc() || after != port.data() + port.size() || value == 0 || value > 65535) {
      return refuse("has a port that is not a number from 1 to 65535");
    }
    url.port = static_cast<uint16_t>(value);
  }
  return url;
}

}  // namespace pocketfleet::net
