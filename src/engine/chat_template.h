// The model's chat template (Jinja, run by llama.cpp's common library). Text of messages, tools and arguments never becomes a
// control token: texts of special tokens inside it are taken out before rendering and put back as plain text afterwards. Const,
// any thread.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "engine/chat_frame.h"
#include "engine/output_format.h"
#include "engine/types.h"
#include "engine/vocab.h"

struct llama_model;

namespace pocketfleet {

class ChatTemplate {
 public:
  // `override_source`: a template to use instead of the model's own. Models without one get ChatML.
  static Result<std::unique_ptr<ChatTemplate>> create(const llama_model* model, const Vocab& vocab,
                                                      const std::string& override_source);
  ~ChatTemplate();

  // kInvalidArgument with the template's own words when it refuses the messages; param says which part of the request.
  Result<RenderedChat> render(const ChatInput& input) const;
  bool supports_thinking() const;

 private:
  struct Impl;
  struct Rendered;
  explicit ChatTemplate(const Vocab& vocab);
  void forgo_direct_where_it_differs();
  Result<Rendered> apply(const ChatInput& input, bool for_parser) const;
  Result<Tokens> to_tokens(const std::string& text, const std::vector<std::string>& masked) const;
  size_t fixed_prefix(const ChatInput& input) const;
  size_t measure_fixed_prefix(const ChatInput& input) const;
  Result<RenderedChat> render_whole(const ChatInput& input) const;

  // Frames, in chat_template_frames.cpp.
  std::shared_ptr<const ChatFrame> frame_for(const ChatInput& input) const;
  std::shared_ptr<const ChatFrame> make_frame(const ChatInput& input) const;
  Result<RenderedChat> render_in_frame(const ChatFrame& frame, std::string_view content) const;

  const Vocab& vocab_;
  std::unique_ptr<Impl> impl_;
  ContentGuard guard_{{}};
  mutable std::mutex cache_mutex_;
  // By what stands around the last message. Null: seen once, or the template cannot be framed.
  struct Framed {
    int asked = 0;
    std::shared_ptr<const ChatFrame> frame;
  };
  mutable std::unordered_map<std::string, Framed> frames_;
  mutable std::unordered_map<size_t, size_t> fixed_prefixes_;  // by a hash of all that stands before the first other message
};

}  // namespace pocketfleet
