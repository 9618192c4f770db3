// A request to stop, shared by the one who asks and the one who works. Copies share one flag; any thread may use it.
// The worker polls cancelled(); the flag is never taken back.
#pragma once

#include <atomic>
#include <memory>

namespace pocketfleet {

class CancelToken {
 public:
  CancelToken() : flag_(std::make_shared<std::atomic<bool>>(false)) {}
  void cancel() const { flag_->store(true, std::memory_order_release); }
  bool cancelled() const { return flag_->load(std::memory_order_acquire); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

}  // namespace pocketfleet
