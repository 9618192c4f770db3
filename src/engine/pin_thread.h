// Holds a thread to some cores. What it starts from then on, as OpenMP's workers are, is held to them too.
#pragma once

#include <span>

#include "base/result.h"

namespace pocketfleet {

// The calling thread. Does nothing for an empty list; kInvalidArgument when none of them may be used.
Result<void> pin_thread(std::span<const int> cpus);

}  // namespace pocketfleet
