#include "engine/chat_frame.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

TEST(ContentGuard, TextsThatHoldALiteralOfTheTemplateDoNotPass) {
  const ContentGuard guard(R"(It's {% if m.content == 'stop' or "</think>" in m.content %}{{ 'a\nb' }}{% endif %} don't)");
  EXPECT_TRUE(guard.passes("hello"));
  EXPECT_TRUE(guard.passes("It's don't"));
  EXPECT_FALSE(guard.passes("please stop it"));
  EXPECT_FALSE(guard.passes("x</think>y"));
  EXPECT_FALSE(guard.passes("a\nb"));
  EXPECT_TRUE(guard.passes("a b"));
}

TEST(ContentGuard, TextsThatATemplateMayTrimDoNotPass) {
  const ContentGuard guard("{{ m.content | trim }}");
  EXPECT_TRUE(guard.passes("a\n b"));
  for (const char* text : {"", " a", "a ", "\na", "a\t",
                           "\xC2\xA0"
                           "a",
                           "a\xC2\xA0", "a\xE2\x80\x83",
                           "\xE3\x80\x80"
                           "a",
                           "\xE1\x9A\x80"})
    EXPECT_FALSE(guard.passes(text)) << text;
}

TEST(ContentGuard, UnfinishedTemplatesAreReadToTheirEnd) {
  for (const char* source : {"", "{", "{{", "{{ 'a", "{% \"a\\", "{{ 'a\\'"})
    EXPECT_TRUE(ContentGuard(source).passes("hello")) << source;
}

}  // namespace
}  // namespace pocketfleet
