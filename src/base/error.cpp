#include "base/error.h"

namespace pocketfleet {

namespace {

struct Row {
  ErrorCode code;
  std::string_view name;
  ErrorMapping mapping;
};

constexpr Row kRows[] = {
    {ErrorCode::kInvalidArgument, "invalid_argument", {400, "invalid_request_error", ""}},
    {ErrorCode::kUnsupportedParameter, "unsupported_parameter", {400, "invalid_request_error", "unsupported_parameter"}},
    {ErrorCode::kContextLengthExceeded, "context_length_exceeded", {400, "invalid_request_error", "context_length_exceeded"}},
    {ErrorCode::kModelNotFound, "model_not_found", {404, "invalid_request_error", "model_not_found"}},
    {ErrorCode::kUnauthenticated, "unauthenticated", {401, "authentication_error", "invalid_api_key"}},
    {ErrorCode::kPermissionDenied, "permission_denied", {403, "permission_error", ""}},
    {ErrorCode::kNotFound, "not_found", {404, "invalid_request_error", "not_found"}},
    {ErrorCode::kMethodNotAllowed, "method_not_allowed", {405, "invalid_request_error", "method_not_allowed"}},
    {ErrorCode::kPayloadTooLarge, "payload_too_large", {413, "invalid_request_error", "payload_too_large"}},
    {ErrorCode::kHeaderTooLarge, "header_too_large", {431, "invalid_request_error", "header_too_large"}},
    {ErrorCode::kRequestTimeout, "request_timeout", {408, "invalid_request_error", "request_timeout"}},
    {ErrorCode::kQueueFull, "queue_full", {429, "rate_limit_error", "queue_full"}},
    {ErrorCode::kTooLate, "too_late", {429, "rate_limit_error", "too_late"}},
    {ErrorCode::kLoading, "loading", {503, "service_unavailable_error", "model_loading"}},
    {ErrorCode::kUnavailable, "unavailable", {503, "service_unavailable_error", "unavailable"}},
    {ErrorCode::kDeadlineExceeded, "deadline_exceeded", {504, "timeout_error", "deadline_exceeded"}},
    {ErrorCode::kCancelled, "cancelled", {499, "cancelled_error", "cancelled"}},
    {ErrorCode::kInvalidModel, "invalid_model", {500, "server_error", "invalid_model"}},
    {ErrorCode::kOutOfMemory, "out_of_memory", {500, "server_error", "out_of_memory"}},
    {ErrorCode::kIo, "io", {500, "server_error", "io"}},
    {ErrorCode::kConnectionClosed, "connection_closed", {502, "server_error", "connection_closed"}},
    {ErrorCode::kProtocol, "protocol", {502, "server_error", "protocol"}},
    {ErrorCode::kInternal, "internal", {500, "server_error", "internal"}},
};

const Row& row(ErrorCode code) {
  for (const Row& r : kRows) {
    if (r.code == code) return r;
  }
  return kRows[std::size(kRows) - 1];
}

}  // namespace

ErrorMapping map_error(ErrorCode code) {
  return row(code).mapping;
}

std::string_view error_name(ErrorCode code) {
  return row(code).name;
}

}  // namespace pocketfleet
