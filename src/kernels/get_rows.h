// Rows of a packed weight as floats: the embeddings of tokens, so that a model that uses one matrix at both ends keeps it once.
#pragma once

#include "kernels/op.h"

namespace pocketfleet::kernels {

// Its weight has to be packed; everything else supports() checks.
extern const Op kGetPackedRows;

}  // namespace pocketfleet::kernels
