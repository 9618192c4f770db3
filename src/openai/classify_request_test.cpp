#include "openai/classify_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace pocketfleet {
namespace {

Result<ClassifyRequest> read(const std::string& text) {
  return read_classify_request(Json::parse(text));
}

TEST(ClassifyRequest, ATextOrAnArrayOfTextsIsRead) {
  const auto one = read(R"({"model":"m","profile":"p","input":"text"})");
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->profile, "p");
  EXPECT_EQ(one->inputs, std::vector<std::string>{"text"});
  const auto many = read(R"({"labels":["a","b"],"instructions":"i","input":["x","y"]})");
  ASSERT_TRUE(many) << many.error().message;
  EXPECT_EQ(many->inputs.size(), 2u);
  ASSERT_TRUE(many->inline_profile);
  EXPECT_EQ(many->inline_profile->instructions, "i");
}

TEST(ClassifyRequest, EqualTasksHaveEqualKeysAndOthersDoNot) {
  const auto first = read(R"({"labels":["a","b"],"instructions":"i","input":"x"})");
  const auto same = read(R"({"input":["y"],"instructions":"i","labels":["a","b"]})");
  const auto other = read(R"({"labels":["a","c"],"instructions":"i","input":"x"})");
  EXPECT_EQ(first->inline_key, same->inline_key);
  EXPECT_NE(first->inline_key, other->inline_key);
}

TEST(ClassifyRequest, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"profile":"p"})", "input"},
      {R"({"profile":"p","input":7})", "input"},
      {R"({"profile":"p","input":[]})", "input"},
      {R"({"profile":"p","input":["a",7]})", "input[1]"},
      {R"({"profile":7,"input":"a"})", "profile"},
      {R"({"model":7,"input":"a"})", "model"},
      {R"({"user":7,"profile":"p","input":"a"})", "user"},
      {R"({"profile":"p","labels":["a","b"],"input":"a"})", "labels"},
      {R"({"instructions":"i","input":"a"})", "labels"},
      {R"({"labels":["a"],"input":"a"})", "labels"},
      {R"({"labels":["a","b"],"threshold":0.5,"input":"a"})", "threshold"},
      {R"({"profile":"p","input":"a","truncate":true})", "truncate"},
      {R"([])", ""},
  };
  for (const auto& [text, param] : cases) {
    const auto request = read(text);
    ASSERT_FALSE(request) << text;
    EXPECT_EQ(request.error().param, param) << request.error().message;
  }
  EXPECT_NE(read(R"({"profil":"p","input":"a"})").error().message.find("did you mean \"profile\"?"), std::string::npos);
}

TEST(ClassifyRequest, MoreInputsThanTheLimitAreRefusedWithBothNumbers) {
  Json body = {{"profile", "p"}, {"input", Json::array()}};
  for (size_t index = 0; index < kMaxClassifyInputs; ++index) body["input"].push_back("x");
  EXPECT_TRUE(read_classify_request(body));
  body["input"].push_back("x");
  const auto request = read_classify_request(body);
  ASSERT_FALSE(request);
  EXPECT_NE(request.error().message.find("2049"), std::string::npos);
  EXPECT_NE(request.error().message.find("2048"), std::string::npos);
}

TEST(ClassifyRequest, CalibrationIsATruthValueBesideAProfileAndAnObjectInATask) {
  EXPECT_TRUE(read(R"({"profile":"p","input":"a"})")->calibrate);
  EXPECT_FALSE(read(R"({"profile":"p","input":"a","calibration":false})")->calibrate);
  const auto task = read(R"({"labels":["a","b"],"input":"a","calibration":{"temperature":2}})");
  ASSERT_TRUE(task) << task.error().message;
  EXPECT_DOUBLE_EQ(task->inline_profile->calibration.temperature, 2);
  EXPECT_EQ(read(R"({"profile":"p","input":"a","calibration":{"temperature":2}})").error().param, "calibration");
}

}  // namespace
}  // namespace pocketfleet
