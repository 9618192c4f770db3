// Errors as values. One enum for the whole product; each value has a one-line meaning, and one table maps it to HTTP and to
// OpenAI's `type` and `code`. An Error owns its strings and may be copied between threads. Nothing here throws.
#pragma once

#include <string>
#include <string_view>

namespace pocketfleet {

enum class ErrorCode {
  kInvalidArgument,        // the request holds a value that is wrong, whatever the state of the server
  kUnsupportedParameter,   // the request asks for something that this server does not do
  kContextLengthExceeded,  // the prompt, or the prompt and what is to be written, does not fit the context
  kModelNotFound,          // the request names a model that is not served here
  kUnauthenticated,        // no key, or a key that is not known
  kPermissionDenied,       // the key is known but may not do this
  kNotFound,               // no such route, profile or object
  kMethodNotAllowed,       // the route exists, but not for this method
  kPayloadTooLarge,        // the body is larger than the limit
  kHeaderTooLarge,         // the header block is larger than the limit
  kRequestTimeout,         // the peer did not send its request in time
  kQueueFull,              // more work is waiting than the server accepts; try again later
  kTooLate,                // the answer could not be there before the caller stops waiting
  kLoading,                // the model is still being loaded
  kUnavailable,            // the server is going away, or a part of it has failed
  kDeadlineExceeded,       // the work did not end before its deadline
  kCancelled,              // the caller has gone, or has taken its request back
  kInvalidModel,           // the model file is damaged, hostile or of a kind that is not known
  kOutOfMemory,            // the work does not fit the memory that is there
  kIo,                     // the operating system refused a file or a socket
  kConnectionClosed,       // the other side closed the connection
  kProtocol,               // the other side broke the protocol
  kInternal,               // a mistake of ours
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;    // what happened, which input, and what to do
  std::string param;      // the request's parameter that is at fault, or empty
  int retry_after_s = 0;  // when to try again, in seconds; 0: not said
};

// How an error looks to an HTTP client: status line, and `type` and `code` of OpenAI's error object (code may be empty: null).
struct ErrorMapping {
  int http_status;
  std::string_view openai_type;
  std::string_view openai_code;
};

ErrorMapping map_error(ErrorCode code);

// The enum value in words, for logs: "invalid_argument".
std::string_view error_name(ErrorCode code);

}  // namespace pocketfleet
