// Streams over sockets (TCP and Unix), and how a client gets one, with TLS or without. A stream from a connect helper runs on the
// coroutine's executor.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <memory>
#include <string>

#include "net/stream.h"
#include "net/tls.h"

namespace pocketfleet::net {

// Takes a connected socket over. Its executor must be a strand, or of a context with one thread.
std::unique_ptr<Stream> make_socket_stream(asio::generic::stream_protocol::socket socket, std::string peer);

// Tries every address of the host until one answers; timeout_ms is for all of it, name resolution included.
asio::awaitable<Result<std::unique_ptr<Stream>>> connect_tcp(std::string host, uint16_t port, int64_t timeout_ms);
asio::awaitable<Result<std::unique_ptr<Stream>>> connect_unix(std::string path, int64_t timeout_ms);
asio::awaitable<Result<std::unique_ptr<Stream>>> connect_tls(std::shared_ptr<TlsContext> context, std::string host, uint16_t port,
                                                             int64_t timeout_ms);

}  // namespace pocketfleet::net
