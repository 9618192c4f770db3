#include "base/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <ctime>

#include "base/clock.h"

namespace pocketfleet {

namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};
std::atomic<bool> g_json{false};

spdlog::logger& sink() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = spdlog::stderr_logger_mt("pocketfleet");
    made->set_pattern("%v");
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warn";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      break;
  }
  return "off";
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

bool plain(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte >= 0x7F || c == '"' || c == '=' || c == '\\') return false;
  }
  return true;
}

std::string timestamp(int64_t unix_ms) {
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", utc, unix_ms % 1000);
}

}  // namespace

LogField::LogField(std::string_view k, double v) : key(k), quoted(false) {
  value = std::isfinite(v) ? fmt::format("{:.3f}", v) : std::string("0");
}

void set_log_level(LogLevel level) {
  g_level = level;
}
void set_json_logs(bool on) {
  g_json = on;
}

std::string format_log_line(bool json, int64_t unix_ms, LogLevel level, std::string_view event, const LogField* fields,
                            size_t count) {
  std::string line;
  if (json) {
    line = fmt::format("{{\"time\":\"{}\",\"level\":\"{}\",\"event\":{}", timestamp(unix_ms), level_name(level), quote(event));
    for (size_t index = 0; index < count; ++index) {
      line += fmt::format(",{}:{}", quote(fields[index].key),
                          fields[index].quoted ? quote(fields[index].value) : fields[index].value);
    }
    return line + "}";
  }
  line = fmt::format("time={} level={} event={}", timestamp(unix_ms), level_name(level),
                     plain(event) ? std::string(event) : quote(event));
  for (size_t index = 0; index < count; ++index) {
    const std::string& value = fields[index].value;
    line += fmt::format(" {}={}", fields[index].key, !fields[index].quoted || plain(value) ? value : quote(value));
  }
  return line;
}

void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level < g_level.load() || g_level.load() == LogLevel::kOff) return;
  sink().info("{}", format_log_line(g_json, SystemClock::instance().unix_ms(), level, event, fields.begin(), fields.size()));
}

}  // namespace pocketfleet
