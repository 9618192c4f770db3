// The fields that chat and completions share: sampling, lengths, stops, penalties, constraints. Pure. Errors name the parameter.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/types.h"
#include "openai/params.h"

namespace pocketfleet {

inline constexpr int kMostChoices = 8;
inline constexpr size_t kMostStops = 16;

struct GenerationParams {
  SamplingParams sampling;
  std::optional<int> max_tokens;
  std::vector<std::string> stop;
  int n = 1;
  bool stream = false;
  bool include_usage = false;
  bool ignore_eos = false;
  Constraint constraint;
  std::vector<std::string> choices;  // a constraint to one of these texts
  std::string choices_param;         // the parameter they stood in
};

// Reads them from `reader`; errors stay in the reader. `vocabulary` bounds logit_bias.
GenerationParams read_generation_params(ParamReader& reader, int vocabulary);

}  // namespace pocketfleet
