// For tests of links, whatever carries them: the loop that both ends run on, an agent's key and introduction, and tasks that run
// beside the test's own coroutine.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "crypto/certificate.h"
#include "net/signal.h"
#include "tunnel/identity.h"
#include "tunnel/link.h"

namespace pocketfleet::tunnel {

class LinkTest : public ::testing::Test {
 protected:
  using Pair = std::pair<std::shared_ptr<RelayLink>, std::shared_ptr<AgentLink>>;

  template <typename T>
  T run(asio::awaitable<T> work) {
    auto done = asio::co_spawn(context_, std::move(work), asio::use_future);
    context_.restart();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      if (std::chrono::steady_clock::now() > until) throw std::runtime_error("the test does not end");
      context_.run_one_for(std::chrono::seconds(1));
    }
    return done.get();
  }

  AgentLink::Introduction introduction(const std::shared_ptr<AgentLink>& agent, std::string key_auth = {}) {
    AgentLink::Introduction out;
    out.domain = domain_;
    out.key_auth = std::move(key_auth);
    out.prove = [this, binding = agent->facts().binding](bool bound) {
      return bound ? prove_binding(key_, domain_, binding) : prove_domain(key_, domain_);
    };
    return out;
  }

  struct Task {
    explicit Task(const asio::any_io_executor& executor) : done(executor) {}
    std::optional<Result<void>> result;
    net::Signal done;
  };
  std::shared_ptr<Task> start(asio::awaitable<Result<void>> work) {
    auto task = std::make_shared<Task>(context_.get_executor());
    asio::co_spawn(
        context_,
        [task, work = std::move(work)]() mutable -> asio::awaitable<void> {
          task->result = co_await std::move(work);
          task->done.raise();
        },
        asio::detached);
    return task;
  }
  static asio::awaitable<Result<void>> end_of(std::shared_ptr<Task> task) {
    while (!task->result) {
      const bool woken = co_await task->done.wait(30'000);
      if (!woken) break;
    }
    co_return task->result.value_or(fail(ErrorCode::kDeadlineExceeded, "the task did not end"));
  }
  std::shared_ptr<Task> introduce(const std::shared_ptr<AgentLink>& agent, std::string key_auth = {}) {
    return start(agent->introduce(introduction(agent, std::move(key_auth)), 5'000));
  }

  asio::io_context context_;
  const P256PrivateKey key_ = *P256PrivateKey::generate();
  const std::string key_pem_ = *key_.to_pem();
  const std::string certificate_ = *make_agent_certificate(key_, "twelve bytes");
  const std::string domain_ = client_id(key_.public_key()) + ".fleet.test";
};

}  // namespace pocketfleet::tunnel
