// A client that has waited long enough closes its connection and sends the same request again. Its first try may be nearly done:
// the second one then waits for that answer instead of being read once more. Only for answers in one piece, of clients that say
// how often they have tried. Work goes on without a caller for a short time, and its answer is kept as long, but only when he
// left because his time was up; one who left earlier does not come back. Any thread; the work runs on the first caller's
// executor.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "net/http.h"
#include "openai/request_log.h"

namespace pocketfleet {

class RunningAnswers {
 public:
  struct Answer {
    net::HttpResponse response;
    std::optional<Usage> usage;
    std::string error;  // error_name(), or empty
  };
  // Gives the answer; request.gone is set when nobody waits for it any more.
  using Work = std::function<boost::asio::awaitable<Answer>(net::HttpRequest& request)>;

  struct Given {
    Answer answer;
    bool attached = false;  // it is another try's
  };

  RunningAnswers(const Clock& clock, int64_t linger_ms);
  ~RunningAnswers();
  RunningAnswers(const RunningAnswers&) = delete;
  RunningAnswers& operator=(const RunningAnswers&) = delete;

  // Whether a request may be one of several tries: it says x-stainless-retry-count, and asks for an answer in one piece.
  static bool concerns(const net::HttpRequest& request);
  // Whether a caller who leaves has most likely run out of time, and so comes again. `patience_ms`: 0 when he did not say.
  static bool time_was_up(int64_t waited_ms, int64_t patience_ms);
  // Runs `work` on a copy of the request, or waits for a first try that runs. `caller`: only tries of one caller meet. Nothing
  // when this caller has gone. `patience_ms`: how long he waits at most; 0: not known. The request's body is taken, but for
  // retries.
  boost::asio::awaitable<std::optional<Given>> answer(net::HttpRequest& request, const std::string& caller, int64_t patience_ms,
                                                      Work work);
  size_t running() const;

 private:
  struct Running;
  boost::asio::awaitable<void> run(std::shared_ptr<Running> running);
  void forget(const std::shared_ptr<Running>& running);
  boost::asio::awaitable<void> linger(std::shared_ptr<Running> running, uint64_t leaves);

  const Clock& clock_;
  const int64_t linger_ms_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Running>> running_;
  size_t kept_ = 0;
};

}  // namespace pocketfleet
