// The HTTP server with one trivial route, for bench/net. Usage: net_bench_server [threads]. Prints its port, serves until it is
// killed.
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "net/http_server.h"

namespace net = pocketfleet::net;

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  if (threads < 1 || threads > 64) return std::fprintf(stderr, "usage: net_bench_server [threads, 1 to 64]\n"), 2;
  boost::asio::io_context context(threads);
  net::ServerOptions options;
  options.max_connections = 100'000;
  net::HttpServer server(context.get_executor(), options,
                         [](net::HttpRequest&, net::ResponseWriter& writer) -> boost::asio::awaitable<void> {
                           net::HttpResponse response;
                           response.headers.add("content-type", "text/plain");
                           response.body = "ok";
                           co_await writer.send(std::move(response));
                         });
  const auto port = server.listen_tcp("127.0.0.1", 0);
  if (!port) return std::fprintf(stderr, "%s\n", port.error().message.c_str()), 1;
  std::printf("%d\n", *port);
  std::fflush(stdout);
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back([&] { context.run(); });
  context.run();
  for (auto& thread : others) thread.join();
  return 0;
}
