// TXT records of DNS, by the C library's resolver. Blocks until there is an answer: call it on a thread of its own. Errors:
// kUnavailable when no server answers, kInvalidArgument for a server that is no address. A name that is not there, or has no such
// records, has none.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace pocketfleet::relay {

// Each string of each record, not joined. `server`: "192.0.2.1" or "192.0.2.1:53"; empty: those of the system.
Result<std::vector<std::string>> lookup_txt(const std::string& name, const std::string& server);

// The strings in an answer of DNS (RFC 1035, 3.3.14); pure. Nothing for what cannot be read.
std::vector<std::string> txt_in_answer(const unsigned char* answer, size_t size);

}  // namespace pocketfleet::relay
