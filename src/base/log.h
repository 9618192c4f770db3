// Structured log lines on standard error: time, level, event and key=value pairs (logfmt), or JSON with set_json_logs(true).
// Values are quoted where they need it, so a line stays one line. Never pass prompt or answer text. Any thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pocketfleet {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

struct LogField {
  LogField(std::string_view k, std::string_view v) : key(k), value(v), quoted(true) {}
  LogField(std::string_view k, const char* v) : LogField(k, std::string_view(v)) {}
  LogField(std::string_view k, const std::string& v) : LogField(k, std::string_view(v)) {}
  LogField(std::string_view k, long long v) : key(k), value(std::to_string(v)), quoted(false) {}
  LogField(std::string_view k, long v) : LogField(k, static_cast<long long>(v)) {}
  LogField(std::string_view k, int v) : LogField(k, static_cast<long long>(v)) {}
  LogField(std::string_view k, unsigned long v) : LogField(k, static_cast<long long>(v)) {}
  LogField(std::string_view k, double v);
  std::string key;
  std::string value;
  bool quoted;
};

void set_log_level(LogLevel level);
void set_json_logs(bool on);

void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});
inline void log_info(std::string_view event, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kInfo, event, fields);
}
inline void log_warn(std::string_view event, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kWarn, event, fields);
}
inline void log_error(std::string_view event, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kError, event, fields);
}
inline void log_debug(std::string_view event, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kDebug, event, fields);
}

// The line as it would be printed, without its end; for tests.
std::string format_log_line(bool json, int64_t unix_ms, LogLevel level, std::string_view event, const LogField* fields,
                            size_t count);

}  // namespace pocketfleet
