// Instead of quic_link.cpp where the libraries for QUIC are missing.
#include "tunnel/quic_link.h"

namespace pocketfleet::tunnel {

namespace {

tl::unexpected<Error> no_quic() {
  return fail(ErrorCode::kUnsupportedParameter, "this program was built without QUIC; use HTTP/2");
}

}  // namespace

struct QuicListener::Impl {};

bool quic_available() {
  return false;
}

Result<std::shared_ptr<QuicListener>> QuicListener::open(asio::any_io_executor, const std::string&, uint16_t, QuicServerOptions,
                                                         OnLink) {
  return no_quic();
}

QuicListener::QuicListener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
QuicListener::~QuicListener() = default;

uint16_t QuicListener::port() const {
  return 0;
}

size_t QuicListener::connections() const {
  return 0;
}

Result<void> QuicListener::set_certificate(const std::string&, const std::string&) {
  return no_quic();
}

void QuicListener::close() {}

asio::awaitable<Result<std::shared_ptr<AgentLink>>> dial_quic(std::string, uint16_t, std::string, QuicDialOptions, int64_t) {
  co_return no_quic();
}

void migrate_quic(AgentLink&) {}

}  // namespace pocketfleet::tunnel
