// Result<T>: a value or an Error, for what can go wrong outside us. `return fail(code, message)` makes the error side;
// PF_TRY(name, expression) binds the value or returns the error to the caller.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "base/error.h"

namespace pocketfleet {

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string param = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(param), 0});
}

inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace pocketfleet

#define PF_CONCAT_INNER(a, b) a##b
#define PF_CONCAT(a, b) PF_CONCAT_INNER(a, b)

// PF_TRY(auto value, function()); : for functions that return Result. In a coroutine use PF_CO_TRY.
#define PF_TRY_IMPL(declaration, expression, temporary, return_word)             \
  auto temporary = (expression);                                                 \
  if (!temporary) return_word ::pocketfleet::fail(std::move(temporary).error()); \
  declaration = *std::move(temporary)
#define PF_TRY(declaration, expression) PF_TRY_IMPL(declaration, expression, PF_CONCAT(pf_try_, __LINE__), return )
#define PF_CO_TRY(declaration, expression) PF_TRY_IMPL(declaration, expression, PF_CONCAT(pf_try_, __LINE__), co_return )

// For Result<void>, or where the value is not wanted.
#define PF_CHECK_OK(expression)                                               \
  do {                                                                        \
    auto pf_status = (expression);                                            \
    if (!pf_status) return ::pocketfleet::fail(std::move(pf_status).error()); \
  } while (false)
#define PF_CO_CHECK_OK(expression)                                               \
  do {                                                                           \
    auto pf_status = (expression);                                               \
    if (!pf_status) co_return ::pocketfleet::fail(std::move(pf_status).error()); \
  } while (false)
