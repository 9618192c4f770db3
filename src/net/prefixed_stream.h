// A stream some of whose first bytes have been read already: they come again, then what the stream underneath gives. Owns that
// stream and keeps the contract of net/stream.h.
#pragma once

#include <memory>
#include <string>

#include "net/stream.h"

namespace pocketfleet::net {

std::unique_ptr<Stream> make_prefixed_stream(std::unique_ptr<Stream> stream, std::string prefix);

}  // namespace pocketfleet::net
