#include "openai/profile.h"

#include <gtest/gtest.h>

#include "base/files.h"

namespace pocketfleet {
namespace {

constexpr const char* kMinimal = R"({"name":"guard","instructions":"Judge.","labels":["no","yes"]})";

std::string error_of(const std::string& text, const std::string& param) {
  const auto profile = parse_profile(text);
  if (profile) return "accepted";
  EXPECT_EQ(profile.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(profile.error().param, param) << profile.error().message;
  return profile.error().message;
}

// The minimal profile with one key more.
std::string with(const std::string& extra) {
  return R"({"name":"guard","instructions":"Judge.","labels":["no","yes"],)" + extra + "}";
}

TEST(Profile, TheLeastProfileHasDefaults) {
  const auto profile = parse_profile(kMinimal);
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(profile->name, "guard");
  EXPECT_EQ(profile->input_role, "user");
  EXPECT_EQ(profile->input_template, "{input}");
  EXPECT_EQ(profile->label_texts(), (std::vector<std::string>{"no", "yes"}));
  EXPECT_TRUE(profile->positive.empty());
  EXPECT_EQ(profile->window.characters, 0u);
  EXPECT_FALSE(profile->thinking);
}

TEST(Profile, TheShippedProfilesAreValid) {
  for (const char* name : {"profile.json", "profile-windowed.json"}) {
    const auto profile = load_profile(std::string(POCKETFLEET_SOURCE_DIR "/models/scam-guard/") + name);
    ASSERT_TRUE(profile) << profile.error().message;
    EXPECT_EQ(profile->instructions, "Review the SMS. Reply RISK_LEVEL: n, from 1 (safe) to 5 (scam).");
    EXPECT_EQ(profile->answer_prefix, "RISK_LEVEL: ");
    EXPECT_EQ(profile->label_texts(), (std::vector<std::string>{"1", "2", "3", "4", "5"}));
    EXPECT_EQ(profile->positive, (std::vector<size_t>{3, 4}));
    if (const auto prompt = read_file(POCKETFLEET_SOURCE_DIR "/../shared/models/scam-guard/prompt.txt", 10'000)) {
      EXPECT_EQ(profile->instructions, *prompt);
    }
  }
}

TEST(Profile, AnUnknownKeyIsAnErrorWithASuggestion) {
  EXPECT_EQ(error_of(with(R"("treshold":0.5)"), "treshold"),
            R"("treshold" is not a key of a profile; did you mean "threshold"?)");
  EXPECT_EQ(error_of(with(R"("window":{"chars":240,"stride":1})"), "window.chars"),
            R"("window.chars" is not a key of a profile)");
  EXPECT_EQ(error_of(with(R"("window":{"characters":240,"strid":1})"), "window.strid"),
            R"("window.strid" is not a key of a profile; did you mean "stride"?)");
  EXPECT_EQ(error_of(R"({"name":"g","labels":["a",{"label":"b","nam":"c"}]})", "labels[1].nam"),
            R"("labels[1].nam" is not a key of a profile; did you mean "name"?)");
  const std::string huge(10'000, 'x');
  EXPECT_LT(error_of(with("\"" + huge + "\":1"), std::string(64, 'x') + "...").size(), 200u);
}

TEST(Profile, EveryWrongValueNamesItsKey) {
  const std::pair<std::string, const char*> cases[] = {
      {R"({"labels":["a","b"]})", "name"},
      {R"({"name":"","labels":["a","b"]})", "name"},
      {R"({"name":"a b","labels":["a","b"]})", "name"},
      {R"({"name":7,"labels":["a","b"]})", "name"},
      {R"({"name":"g"})", "labels"},
      {R"({"name":"g","labels":"a"})", "labels"},
      {R"({"name":"g","labels":["a"]})", "labels"},
      {R"({"name":"g","labels":["a",""]})", "labels[1]"},
      {R"({"name":"g","labels":["a",7]})", "labels[1]"},
      {R"({"name":"g","labels":["a","b","a"]})", "labels[2]"},
      {R"({"name":"g","labels":["a",{"name":"b"}]})", "labels[1].label"},
      {R"({"name":"g","labels":["a",{"label":5}]})", "labels[1].label"},
      {with(R"("instructions":7)"), "instructions"},
      {with(R"("input":"user")"), "input"},
      {with(R"("input":{"role":"assistant"})"), "input.role"},
      {with(R"("input":{"role":"system"})"), "input.role"},
      {with(R"("input":{"template":"none"})"), "input.template"},
      {with(R"("input":{"template":"{input} {input}"})"), "input.template"},
      {with(R"("input":{"template":"{instructions}{instructions}{input}"})"), "input.template"},
      {R"({"name":"g","labels":["a","b"],"input":{"template":"{instructions} {input}"}})", "instructions"},
      {with(R"("answer_prefix":null)"), "answer_prefix"},
      {with(R"("positive":"yes")"), "positive"},
      {with(R"("positive":[])"), "positive"},
      {with(R"("positive":["yes","no"])"), "positive"},
      {with(R"("positive":["maybe"])"), "positive[0]"},
      {with(R"("positive":["yes","yes"])"), "positive[1]"},
      {with(R"("threshold":0.5)"), "threshold"},
      {with(R"("positive":["yes"],"threshold":1.5)"), "threshold"},
      {with(R"("positive":["yes"],"threshold":-0.1)"), "threshold"},
      {with(R"("positive":["yes"],"threshold":"0.5")"), "threshold"},
      {with(R"("window":240)"), "window"},
      {with(R"("window":{"characters":240})"), "window.stride"},
      {with(R"("window":{"stride":240})"), "window.characters"},
      {with(R"("window":{"characters":0,"stride":1})"), "window.characters"},
      {with(R"("window":{"characters":-5,"stride":1})"), "window.characters"},
      {with(R"("window":{"characters":2.5,"stride":1})"), "window.characters"},
      {with(R"("window":{"characters":240,"stride":241})"), "window.stride"},
      {with(R"("thinking":"off")"), "thinking"},
  };
  for (const auto& [text, param] : cases) EXPECT_NE(error_of(text, param), "accepted") << text;
}

TEST(Profile, WhatIsNotJsonIsAnErrorAndNothingElse) {
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("7"), std::string(60'000, '['),
                                  std::string("{\"name\":\"\xFF\"}")}) {
    EXPECT_FALSE(parse_profile(text));
  }
}

TEST(Profile, BetweenTwoAndManyLabelsAreAllowed) {
  const auto labels = [](int count) {
    std::string text = R"({"name":"g","labels":["a")";
    for (int index = 1; index < count; ++index) text += ",\"" + std::to_string(index) + "\"";
    return text + "]}";
  };
  EXPECT_TRUE(parse_profile(labels(2)));
  EXPECT_TRUE(parse_profile(labels(512)));
  EXPECT_FALSE(parse_profile(labels(513)));
}

// C-74, C-75: labels that contain or begin one another are fine, since no text is ever searched for them.
TEST(Profile, LabelsMayContainOneAnother) {
  EXPECT_TRUE(parse_profile(R"({"name":"g","labels":["FRAUD","NOT_FRAUD"]})"));
  EXPECT_TRUE(parse_profile(R"({"name":"g","labels":["1","10"]})"));
}

TEST(Profile, TheInstructionsAreASystemMessageOfTheirOwn) {
  const ChatInput chat = profile_chat(*parse_profile(kMinimal), "some text");
  ASSERT_EQ(chat.messages.size(), 2u);
  EXPECT_EQ(chat.messages[0].role, "system");
  EXPECT_EQ(chat.messages[0].content, "Judge.");
  EXPECT_EQ(chat.messages[1].role, "user");
  EXPECT_EQ(chat.messages[1].content, "some text");
  EXPECT_FALSE(chat.enable_thinking);
}

TEST(Profile, InstructionsAndInputMayShareOneMessage) {
  const auto profile = parse_profile(with(R"("input":{"template":"A {instructions} B {input} C"})"));
  ASSERT_TRUE(profile);
  const ChatInput chat = profile_chat(*profile, "text");
  ASSERT_EQ(chat.messages.size(), 1u);
  EXPECT_EQ(chat.messages[0].content, "A Judge. B text C");
  const auto after = parse_profile(with(R"("input":{"template":"{input} C {instructions}"})"));
  EXPECT_EQ(profile_chat(*after, "text").messages.at(0).content, "text C Judge.");
}

TEST(Profile, MarksInsideAnInputAreOnlyText) {
  const auto profile = parse_profile(with(R"("input":{"template":"{instructions}: {input}"})"));
  EXPECT_EQ(profile_chat(*profile, "{instructions} {input}").messages.at(0).content, "Judge.: {instructions} {input}");
  const auto marked = parse_profile(R"({"name":"g","instructions":"{input}","labels":["a","b"]})");
  EXPECT_EQ(profile_chat(*marked, "text").messages.at(0).content, "{input}");
}

TEST(Profile, ACalibrationIsATemperatureOrALine) {
  const auto profile = parse_profile(
      R"({"name":"g","labels":["a","b"],"positive":["b"],"calibration":{"temperature":1.5,"platt":{"slope":0.5,"offset":-1}}})");
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_DOUBLE_EQ(profile->calibration.temperature, 1.5);
  EXPECT_DOUBLE_EQ(profile->calibration.platt->slope, 0.5);
  EXPECT_DOUBLE_EQ(profile->calibration.platt->offset, -1);
  const std::pair<const char*, const char*> wrong[] = {
      {R"("calibration":{})", "calibration"},
      {R"("calibration":2)", "calibration"},
      {R"("calibration":{"temperature":0})", "calibration.temperature"},
      {R"("calibration":{"temperature":"warm"})", "calibration.temperature"},
      {R"("calibration":{"temprature":2})", "calibration.temprature"},
      {R"("positive":["b"],"calibration":{"platt":{"slope":1}})", "calibration.platt.offset"},
      {R"("positive":["b"],"calibration":{"platt":{"slope":-1,"offset":0}})", "calibration.platt.slope"},
      {R"("calibration":{"platt":{"slope":1,"offset":0}})", "calibration.platt"},
  };
  for (const auto& [text, param] : wrong) {
    const auto refused = parse_profile(std::string(R"({"name":"g","labels":["a","b"],)") + text + "}");
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().param, param) << refused.error().message;
  }
}

}  // namespace
}  // namespace pocketfleet
