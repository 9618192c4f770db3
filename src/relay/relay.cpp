#include "relay/relay.h"

#include <sys/resource.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "relay/relay_impl.h"

namespace pocketfleet::relay {

namespace {

constexpr size_t kReservedFiles = 64;  // for what is not a user: listeners, event loops, logs, some agents

size_t open_files_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<size_t>(limit.rlim_cur) : 1'024;
}

asio::awaitable<void> answer_admin(Relay::Impl& relay, net::HttpRequest& request, net::ResponseWriter& writer) {
  net::HttpResponse response(200, {{"content-type", "application/json"}});
  if (request.path == "/metrics") {
    RelayMetrics::Now now;
    now.ids = relay.registry.ids();
    now.links = relay.registry.links();
    now.users = relay.users;
    response.headers.set("content-type", RelayMetrics::kContentType);
    response.body = relay.metrics.render(now);
  } else if (request.path == "/health") {
    const char* status = relay.draining ? "draining" : relay.current_tls() == nullptr ? "starting" : "ok";
    response.status = std::string_view(status) == "ok" ? 200 : 503;
    response.body = dump_json({{"status", status},
                               {"addresses", relay.registry.ids()},
                               {"links", relay.registry.links()},
                               {"users", relay.users.load()}}) +
                    "\n";
  } else {
    response.status = 404;
    response.body = "{\"error\":\"there are /metrics and /health here\"}\n";
  }
  co_await writer.send(std::move(response));
}

}  // namespace

Relay::Relay(RelayOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {}

Relay::~Relay() {
  stop();
}

Result<void> Relay::start() {
  Impl& self = *impl_;
  PF_TRY(const OwnCertificate own, self.load_certificate());
  const size_t files = open_files_limit();
  const size_t room = files > 2 * kReservedFiles ? files - kReservedFiles : files / 2;
  self.most_users = self.options.most_users > 0 ? std::min(self.options.most_users, room) : room;

  const size_t count = self.options.workers > 0 ? self.options.workers : std::max(1u, std::thread::hardware_concurrency());
  self.public_port = self.options.public_port;
  self.agent_port = self.options.agent_port;
  for (size_t i = 0; i < count; ++i) {
    auto worker = std::make_unique<Worker>();
    const auto executor = worker->context.get_executor();
    // The relay outlives its listeners: stop() ends them first.
    PF_TRY(worker->users, Listener::open(
                              executor, self.options.host, self.public_port,
                              [&self](asio::ip::tcp::socket socket, std::string address, std::string peer) {
                                self.take_user(std::move(socket), std::move(address), std::move(peer));
                              },
                              [&self] { self.metrics.user("no file left"); }));
    PF_TRY(worker->agents, Listener::open(
                               executor, self.options.host, self.agent_port,
                               [&self](asio::ip::tcp::socket socket, std::string address, std::string peer) {
                                 if (!self.current_tls()) {
                                   self.metrics.agent("h2", "no certificate");
                                   return;
                                 }
                                 self.take_agent(std::move(socket), std::move(address), std::move(peer));
                               },
                               [&self] { self.metrics.agent("h2", "no file left"); }));
    self.public_port = worker->users->port();
    self.agent_port = worker->agents->port();
    self.workers.push_back(std::move(worker));
  }
  if (self.tls) PF_CHECK_OK(self.open_quic(own));
  if (self.options.admin_port >= 0) {
    self.admin = std::make_unique<net::HttpServer>(
        self.workers.front()->context.get_executor(), net::ServerOptions{},
        [&self](net::HttpRequest& request, net::ResponseWriter& writer) { return answer_admin(self, request, writer); });
    PF_TRY(self.admin_port, self.admin->listen_tcp(self.options.admin_host, static_cast<uint16_t>(self.options.admin_port)));
  }
  self.keep_certificate();
  for (const auto& worker : self.workers) {
    worker->users->start();
    worker->agents->start();
    worker->thread = std::thread([context = &worker->context] { context->run(); });
  }
  return {};
}

uint16_t Relay::public_port() const {
  return impl_->public_port;
}
uint16_t Relay::agent_port() const {
  return impl_->agent_port;
}
int Relay::admin_port() const {
  return impl_->admin_port;
}
size_t Relay::users() const {
  return impl_->users;
}

Result<void> Relay::reload(std::vector<std::string> suffixes) {
  // One that is ordered is renewed by itself.
  if (!impl_->orders_certificate()) PF_CHECK_OK(impl_->reload_certificate());
  const std::lock_guard lock(impl_->mutex);
  impl_->suffixes = std::move(suffixes);
  return {};
}

void Relay::drain(int64_t timeout_ms) {
  Impl& self = *impl_;
  self.draining = true;
  for (const auto& worker : self.workers) {
    asio::post(worker->context, [worker = worker.get()] {
      worker->users->close();
      worker->agents->close();
    });
  }
  // From now on the authority would find nobody.
  if (self.keeper) asio::post(self.workers.front()->context, [keeper = self.keeper] { keeper->stop(); });
  for (const auto& member : self.registry.all()) {
    member->retired = true;
    asio::post(member->link->executor(), [member] { member->link->retire(); });
  }
  log_info("draining", {{"users", static_cast<unsigned long>(self.users.load())}});
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  // The last user may go on any thread, and nothing else is left to do.
  while (self.users > 0 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

void Relay::stop() {
  Impl& self = *impl_;
  for (const auto& worker : self.workers) worker->context.stop();
  for (const auto& worker : self.workers) {
    if (worker->thread.joinable()) worker->thread.join();
  }
  self.admin.reset();
  // What belongs to a loop goes before it.
  self.registry.clear();
  self.quic.reset();
  self.keeper.reset();
  self.workers.clear();
}

}  // namespace pocketfleet::relay
