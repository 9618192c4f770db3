// Checkpoints that outlive the process: a folder of checkpoint files under a byte budget, the least valuable deleted first,
// pinned ones last. save() returns at once and a thread of its own writes; load() reads and verifies on the caller's thread.
// Owned by one server at a time. A file that does not verify is deleted and counted; what goes wrong with the disk costs time,
// never an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint_file.h"
#include "engine/checkpoints.h"

namespace pocketfleet {

class CheckpointDisk final : public CheckpointShelf {
 public:
  struct Options {
    std::string folder;  // made when it is not there
    uint64_t budget_bytes = 0;
    CheckpointIdentity identity;
  };
  // kIo when the folder cannot be used, kUnavailable when another server uses it.
  static Result<std::unique_ptr<CheckpointDisk>> open(Options options);
  // Writes what was given to save() before it returns.
  ~CheckpointDisk() override;

  std::vector<Tokens> list() const override;
  void save(std::span<const Token> tokens, std::shared_ptr<const StateBytes> state, bool pinned) override;
  std::optional<StateBytes> load(std::span<const Token> tokens) override;
  bool holds(std::span<const Token> tokens) const override;
  ShelfCounters counters() const override;

  // Returns once everything given to save() is on the disk, or could not be written.
  void flush();

 private:
  struct Impl;
  explicit CheckpointDisk(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pocketfleet
