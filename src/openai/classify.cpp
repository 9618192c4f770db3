#include "openai/classify.h"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>

#include "net/mailbox.h"
#include "openai/windows.h"

namespace pocketfleet {

namespace asio = boost::asio;

namespace {

// How many prompts are rendered before other work on this thread gets its turn.
constexpr size_t kPromptsInOneGo = 16;

// Items are written by the engine's thread before it pushes the end into the mailbox, and read after that was taken out.
class CollectingSink final : public ScoreSink {
 public:
  using End = net::Mailbox<Result<Usage>>;
  CollectingSink(size_t count, std::shared_ptr<End> end) : items_(count), end_(std::move(end)) {}

  void on_item(size_t index, std::vector<double> probabilities) override {
    if (index < items_.size()) items_[index] = std::move(probabilities);
  }
  void on_done(Result<Usage> done) override { end_->push(std::move(done)); }

  std::vector<std::vector<double>>& items() { return items_; }

 private:
  std::vector<std::vector<double>> items_;
  std::shared_ptr<End> end_;
};

std::string input_name(size_t index) {
  return "input[" + std::to_string(index) + "]";
}

Result<std::shared_ptr<const PreparedProfile>> choose_profile(const Engine& engine, ProfileSet& profiles,
                                                              const ClassifyRequest& request) {
  if (request.inline_profile) return profiles.prepared_inline(engine, *request.inline_profile, request.inline_key);
  if (request.profile) return profiles.prepared(engine, *request.profile);
  const std::vector<std::string> names = profiles.names();
  if (names.size() == 1) return profiles.prepared(engine, names.front());
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return fail(ErrorCode::kInvalidArgument,
              "say what to ask: send \"profile\"" + (list.empty() ? std::string() : " (there is: " + list + ")") +
                  " or \"labels\" and \"instructions\"",
              "profile");
}

Result<void> check_length(const Prompt& prompt, size_t input, int context_tokens) {
  if (context_tokens <= 0 || prompt.tokens.size() <= static_cast<size_t>(context_tokens)) return {};
  return fail(ErrorCode::kContextLengthExceeded,
              "\"" + input_name(input) + "\" has " + std::to_string(prompt.tokens.size()) +
                  " tokens with its instructions; this model's context holds " + std::to_string(context_tokens) +
                  "; shorten the text or give the profile a window",
              input_name(input));
}

}  // namespace

asio::awaitable<Result<ClassifyResult>> classify(Engine& engine, ProfileSet& profiles, const ClassifyRequest& request,
                                                 std::string id, CancelToken gone, Patience patience) {
  const auto executor = co_await asio::this_coro::executor;
  ClassifyResult result;
  PF_CO_TRY(result.prepared, choose_profile(engine, profiles, request));
  const Profile& profile = result.prepared->profile;

  size_t total = 0;
  for (size_t index = 0; index < request.inputs.size(); ++index) {
    total += count_windows(request.inputs[index], profile.window.characters, profile.window.stride);
    if (total > kMaxClassifyWindows) {
      co_return fail(ErrorCode::kInvalidArgument,
                     "with \"" + input_name(index) + "\" the texts come to more than " + std::to_string(kMaxClassifyWindows) +
                         " windows; send fewer in a request",
                     input_name(index));
    }
  }

  ScoreRequest score;
  score.id = std::move(id);
  score.labels = result.prepared->labels;
  score.cancel = gone;
  score.deadline_ms = patience.deadline_ms;
  score.admit_by_ms = patience.admit_by_ms;
  score.inputs.reserve(total);
  const int context_tokens = engine.model().context_tokens;
  std::vector<size_t> windows;  // of each input
  windows.reserve(request.inputs.size());
  for (size_t index = 0; index < request.inputs.size(); ++index) {
    const auto pieces = cut_windows(request.inputs[index], profile.window.characters, profile.window.stride);
    for (const TextWindow& piece : pieces) {
      auto prompt = profile_prompt(engine, *result.prepared, piece.text);
      if (!prompt) {
        Error error = prompt.error();
        if (error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kContextLengthExceeded)
          error.param = input_name(index);
        co_return fail(std::move(error));
      }
      PF_CO_CHECK_OK(check_length(*prompt, index, context_tokens));
      score.inputs.push_back(*std::move(prompt));
      if (score.inputs.size() % kPromptsInOneGo == 0) {
        if (gone.cancelled()) co_return fail(ErrorCode::kCancelled, "the caller has gone");
        co_await asio::post(executor, asio::use_awaitable);
      }
    }
    windows.push_back(pieces.size());
  }

  const auto end = std::make_shared<CollectingSink::End>();
  const auto sink = std::make_shared<CollectingSink>(total, end);
  PF_CO_CHECK_OK(engine.score(std::move(score), sink));
  const std::optional<Result<Usage>> done = co_await end->pop(-1);
  if (!done) co_return fail(ErrorCode::kInternal, "the engine ended without an answer");
  PF_CO_TRY(result.usage, *done);

  result.calibrated = request.calibrate && !profile.calibration.empty();
  size_t first = 0;
  for (const size_t count : windows) {
    const std::span<const std::vector<double>> probabilities(sink->items().data() + first, count);
    for (const auto& item : probabilities) {
      if (item.size() != profile.labels.size())
        co_return fail(ErrorCode::kInternal, "the engine left an input without a verdict");
    }
    result.verdicts.push_back(make_verdict(profile, probabilities, request.calibrate));
    first += count;
  }
  co_return result;
}

Json classify_answer(const ClassifyResult& result, const std::string& id, const std::string& model, int64_t created) {
  const Profile& profile = result.prepared->profile;
  const Json labels = profile.label_texts();
  Json data = Json::array();
  for (size_t index = 0; index < result.verdicts.size(); ++index) {
    const Verdict& verdict = result.verdicts[index];
    const ProfileLabel& label = profile.labels[verdict.label];
    Json item = {{"index", index},
                 {"label", label.label},
                 {"probs", verdict.probabilities},
                 {"num_classes", verdict.probabilities.size()},
                 {"margin", verdict.margin},
                 {"labels", labels}};
    if (!label.name.empty()) item["name"] = label.name;
    if (!profile.positive.empty()) {
      item["score"] = verdict.risk;
      item["flagged"] = verdict.flagged;
    }
    if (profile.window.characters > 0) item["windows"] = {{"count", verdict.windows}, {"riskiest", verdict.riskiest}};
    data.push_back(std::move(item));
  }
  Json answer = {{"id", id}, {"object", "list"}, {"created", created}, {"model", model}, {"data", std::move(data)}};
  if (!profile.name.empty()) answer["profile"] = profile.name;
  if (result.calibrated) answer["calibrated"] = true;
  answer["usage"] = {{"prompt_tokens", result.usage.prompt_tokens},
                     {"completion_tokens", 0},
                     {"total_tokens", result.usage.prompt_tokens},
                     {"prompt_tokens_details", {{"cached_tokens", result.usage.cached_tokens}}}};
  return answer;
}

}  // namespace pocketfleet
