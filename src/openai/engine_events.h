// Carries what an engine reports from its thread into the coroutine of a request. Sinks share the mailbox and may outlive the
// reader. Any thread writes, one coroutine reads. No errors of its own.
#pragma once

#include <memory>
#include <optional>

#include "engine/engine.h"
#include "net/mailbox.h"

namespace pocketfleet {

struct GenerateEvent {
  size_t choice = 0;
  GenerateChunk chunk;
  std::optional<Result<GenerateDone>> done;  // the last event of a choice
};

using GenerateMailbox = net::Mailbox<GenerateEvent>;

class MailboxSink final : public GenerateSink {
 public:
  MailboxSink(std::shared_ptr<GenerateMailbox> mailbox, size_t choice) : mailbox_(std::move(mailbox)), choice_(choice) {}
  void on_chunk(GenerateChunk chunk) override { mailbox_->push({choice_, std::move(chunk), std::nullopt}); }
  void on_done(Result<GenerateDone> done) override { mailbox_->push({choice_, {}, std::move(done)}); }

 private:
  std::shared_ptr<GenerateMailbox> mailbox_;
  size_t choice_;
};

struct ScoreAnswer {
  std::vector<std::vector<double>> probabilities;  // by input
  Result<Usage> done;
};

using ScoreMailbox = net::Mailbox<ScoreAnswer>;

class ScoreMailboxSink final : public ScoreSink {
 public:
  ScoreMailboxSink(std::shared_ptr<ScoreMailbox> mailbox, size_t inputs) : mailbox_(std::move(mailbox)), probabilities_(inputs) {}
  void on_item(size_t index, std::vector<double> probabilities) override { probabilities_[index] = std::move(probabilities); }
  void on_done(Result<Usage> done) override { mailbox_->push({std::move(probabilities_), std::move(done)}); }

 private:
  std::shared_ptr<ScoreMailbox> mailbox_;
  std::vector<std::vector<double>> probabilities_;
};

struct EmbedAnswer {
  std::vector<std::vector<float>> vectors;  // by input
  Result<Usage> done;
};

using EmbedMailbox = net::Mailbox<EmbedAnswer>;

class EmbedMailboxSink final : public EmbedSink {
 public:
  EmbedMailboxSink(std::shared_ptr<EmbedMailbox> mailbox, size_t inputs) : mailbox_(std::move(mailbox)), vectors_(inputs) {}
  void on_item(size_t index, std::vector<float> vector) override { vectors_[index] = std::move(vector); }
  void on_done(Result<Usage> done) override { mailbox_->push({std::move(vectors_), std::move(done)}); }

 private:
  std::shared_ptr<EmbedMailbox> mailbox_;
  std::vector<std::vector<float>> vectors_;
};

}  // namespace pocketfleet
