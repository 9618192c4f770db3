#include "openai/generation_params.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

namespace pocketfleet {

namespace {

constexpr int64_t kMostTokens = 1'000'000;
constexpr size_t kMostBiases = 1'024;
constexpr size_t kMostConstraintBytes = 1u << 20;

void read_stop(ParamReader& reader, GenerationParams& params) {
  const Json* stop = reader.any("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) {
    params.stop.push_back(stop->get<std::string>());
  } else if (stop->is_array()) {
    if (stop->size() > kMostStops) {
      reader.refuse("stop", fmt::format("stop holds {} strings; at most {} are accepted", stop->size(), kMostStops));
      return;
    }
    for (const Json& item : *stop) {
      if (!item.is_string()) {
        reader.refuse("stop", "stop must be a string or an array of strings");
        return;
      }
      params.stop.push_back(item.get<std::string>());
    }
  } else {
    reader.refuse("stop", "stop must be a string or an array of strings");
    return;
  }
  for (const std::string& text : params.stop) {
    if (text.empty() || text.size() > 1'024) reader.refuse("stop", "a stop string must have 1 to 1024 bytes");
  }
}

void read_logit_bias(ParamReader& reader, GenerationParams& params, int vocabulary) {
  const Json* bias = reader.object("logit_bias");
  if (bias == nullptr) return;
  if (bias->size() > kMostBiases) {
    reader.refuse("logit_bias", fmt::format("logit_bias holds {} tokens; at most {} are accepted", bias->size(), kMostBiases));
    return;
  }
  for (const auto& item : bias->items()) {
    Token token = -1;
    const std::string& key = item.key();
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0 || token >= vocabulary) {
      reader.refuse("logit_bias",
                    fmt::format("logit_bias: \"{}\" is not a token id from 0 to {}", key.substr(0, 40), vocabulary - 1));
      return;
    }
    if (!item.value().is_number() || item.value().get<double>() < -100 || item.value().get<double>() > 100) {
      reader.refuse("logit_bias", fmt::format("logit_bias: the value of {} must be between -100 and 100", key));
      return;
    }
    params.sampling.logit_bias.emplace_back(token, item.value().get<float>());
  }
}

// One constraint only; a second one names both.
class ConstraintReader {
 public:
  ConstraintReader(ParamReader& reader, GenerationParams& params) : reader_(reader), params_(params) {}

  void set(const std::string& key, ConstraintKind kind, std::string text) {
    if (!once(key)) return;
    if (text.size() > kMostConstraintBytes) {
      reader_.refuse(key, fmt::format("{} has {} bytes; at most {} are accepted", key, text.size(), kMostConstraintBytes));
      return;
    }
    params_.constraint = {kind, std::move(text)};
  }

  void choices(const std::string& key, const Json& value) {
    if (!once(key)) return;
    params_.choices_param = key;
    if (!value.is_array() || value.size() < 2 || value.size() > 512) {
      reader_.refuse(key, fmt::format("{} must be an array of 2 to 512 strings", key));
      return;
    }
    for (const Json& item : value) {
      if (!item.is_string() || item.get_ref<const std::string&>().empty()) {
        reader_.refuse(key, fmt::format("{} must hold non-empty strings", key));
        return;
      }
      params_.choices.push_back(item.get<std::string>());
    }
  }

  static std::string schema_text(const Json& value) { return value.is_string() ? value.get<std::string>() : dump_json(value); }

 private:
  bool once(const std::string& key) {
    if (!taken_.empty()) {
      reader_.refuse(key, fmt::format("{} and {} cannot both constrain the text", taken_, key));
      return false;
    }
    taken_ = key;
    return true;
  }

  ParamReader& reader_;
  GenerationParams& params_;
  std::string taken_;
};

void read_response_format(ParamReader& reader, ConstraintReader& constraint) {
  const Json* format = reader.object("response_format");
  if (format == nullptr) return;
  ParamReader inside(*format, "response_format.");
  const auto type = inside.string("type", 64);
  if (!type) {
    reader.refuse("response_format.type", "response_format.type must be \"text\", \"json_object\" or \"json_schema\"");
    return;
  }
  if (*type == "json_object") {
    // llama-server's form may carry a schema too.
    const Json* schema = inside.any("schema");
    if (schema != nullptr) {
      constraint.set("response_format", ConstraintKind::kJsonSchema, ConstraintReader::schema_text(*schema));
    } else {
      constraint.set("response_format", ConstraintKind::kJsonObject, {});
    }
  } else if (*type == "json_schema") {
    const Json* wrapper = inside.object("json_schema");
    const Json none = Json::object();
    ParamReader named(wrapper == nullptr ? none : *wrapper, "response_format.json_schema.");
    named.accept({"name", "description", "strict"});
    const Json* schema = named.object("schema");
    if (schema != nullptr) {
      constraint.set("response_format", ConstraintKind::kJsonSchema, dump_json(*schema));
    } else {
      named.refuse("schema", "response_format.json_schema.schema must be an object");
    }
    reader.take(named.finish());
  } else if (*type != "text") {
    reader.refuse("response_format.type",
                  fmt::format("response_format.type \"{}\" is not one of text, json_object, json_schema", type->substr(0, 40)));
  }
  reader.take(inside.finish());
}

// vLLM's structured_outputs, and its older guided_* fields.
void read_structured(ParamReader& reader, ConstraintReader& constraint, std::string_view prefix, ParamReader& fields) {
  const auto named = [&](const char* key) { return std::string(prefix) + key; };
  const auto field = [&](const char* key) { return prefix == "guided_" ? named(key) : std::string(key); };
  if (const Json* value = fields.any(field("choice"))) constraint.choices(named("choice"), *value);
  if (const Json* value = fields.any(field("json"))) {
    constraint.set(named("json"), ConstraintKind::kJsonSchema, ConstraintReader::schema_text(*value));
  }
  if (const auto value = fields.string(field("regex"))) constraint.set(named("regex"), ConstraintKind::kRegex, *value);
  if (const auto value = fields.string(field("grammar"))) constraint.set(named("grammar"), ConstraintKind::kGrammar, *value);
  reader.take(fields.check());
}

}  // namespace

GenerationParams read_generation_params(ParamReader& reader, int vocabulary) {
  GenerationParams params;
  SamplingParams& sampling = params.sampling;
  sampling.temperature = static_cast<float>(reader.number("temperature", 0, 2).value_or(1.0));
  sampling.top_p = static_cast<float>(reader.number("top_p", 0, 1).value_or(1.0));
  sampling.top_k = static_cast<int>(reader.integer("top_k", -1, 1'000'000).value_or(0));
  sampling.min_p = static_cast<float>(reader.number("min_p", 0, 1).value_or(0.0));
  sampling.frequency_penalty = static_cast<float>(reader.number("frequency_penalty", -2, 2).value_or(0.0));
  sampling.presence_penalty = static_cast<float>(reader.number("presence_penalty", -2, 2).value_or(0.0));
  const auto repeat = reader.number("repeat_penalty", 0.01, 10);
  sampling.repeat_penalty = static_cast<float>(reader.number("repetition_penalty", 0.01, 10).value_or(repeat.value_or(1.0)));
  sampling.penalty_window = static_cast<int>(reader.integer("repeat_last_n", -1, 1'000'000).value_or(64));
  if (const auto seed = reader.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max())) {
    // -1 asks for a random one, as llama-server has it; the value that llama.cpp reserves for "random" is moved aside.
    if (*seed != -1) {
      const auto folded = static_cast<uint32_t>(*seed) ^ static_cast<uint32_t>(static_cast<uint64_t>(*seed) >> 32);
      sampling.seed = folded == 0xFFFFFFFFu ? 0xFFFFFFFEu : folded;
    }
  }
  read_logit_bias(reader, params, vocabulary);
  read_stop(reader, params);

  const auto max_tokens = reader.integer("max_tokens", 0, kMostTokens);
  const auto completion = reader.integer("max_completion_tokens", 1, kMostTokens);
  if (completion) {
    params.max_tokens = static_cast<int>(*completion);
  } else if (max_tokens) {
    params.max_tokens = static_cast<int>(*max_tokens);
  }
  params.n = static_cast<int>(reader.integer("n", 1, kMostChoices).value_or(1));
  params.stream = reader.boolean("stream").value_or(false);
  if (const Json* options = reader.object("stream_options")) {
    ParamReader inside(*options, "stream_options.");
    params.include_usage = inside.boolean("include_usage").value_or(false);
    inside.accept({"include_obfuscation"});
    if (inside.boolean("continuous_usage_stats").value_or(false)) {
      reader.refuse("stream_options.continuous_usage_stats",
                    "\"stream_options.continuous_usage_stats\" is not supported; usage comes once, with include_usage");
    }
    reader.take(inside.finish());
    if (!params.stream) reader.refuse("stream_options", "stream_options is only allowed when stream is true");
  }
  params.ignore_eos = reader.boolean("ignore_eos").value_or(false);

  ConstraintReader constraint(reader, params);
  read_response_format(reader, constraint);
  if (const Json* structured = reader.object("structured_outputs")) {
    ParamReader inside(*structured, "structured_outputs.");
    read_structured(reader, constraint, "structured_outputs.", inside);
    if (inside.boolean("json_object").value_or(false)) {
      constraint.set("structured_outputs.json_object", ConstraintKind::kJsonObject, {});
    }
    reader.take(inside.finish());
  }
  read_structured(reader, constraint, "guided_", reader);
  if (const auto grammar = reader.string("grammar")) constraint.set("grammar", ConstraintKind::kGrammar, *grammar);
  if (const Json* schema = reader.any("json_schema")) {
    constraint.set("json_schema", ConstraintKind::kJsonSchema, ConstraintReader::schema_text(*schema));
  }
  return params;
}

}  // namespace pocketfleet
