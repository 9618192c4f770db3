#include "relay/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace pocketfleet::relay {

namespace {

prometheus::Family<prometheus::Counter>& counter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

}  // namespace

struct RelayMetrics::Impl {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& users =
      counter(registry, "pocketfleet_relay_users_total", "Connections of users, by how they ended");
  prometheus::Family<prometheus::Counter>& agents =
      counter(registry, "pocketfleet_relay_agents_total", "Links of agents, by carrier and outcome");
  prometheus::Family<prometheus::Counter>& moved = counter(registry, "pocketfleet_relay_bytes_total", "Bytes carried");
  prometheus::Counter& from_users = moved.Add({{"direction", "from_users"}});
  prometheus::Counter& to_users = moved.Add({{"direction", "to_users"}});
  prometheus::Histogram& opened =
      prometheus::BuildHistogram()
          .Name("pocketfleet_relay_open_seconds")
          .Help("From a user's connection to the stream in the tunnel")
          .Register(registry)
          .Add({}, prometheus::Histogram::BucketBoundaries{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5});
  prometheus::Gauge& ids = gauge(registry, "pocketfleet_relay_addresses", "Addresses that are known");
  prometheus::Gauge& links = gauge(registry, "pocketfleet_relay_links", "Links of agents that take users");
  prometheus::Gauge& open_users = gauge(registry, "pocketfleet_relay_open_users", "Connections of users that are open");
};

RelayMetrics::RelayMetrics() : impl_(std::make_unique<Impl>()) {}
RelayMetrics::~RelayMetrics() = default;

void RelayMetrics::user(std::string_view outcome) {
  impl_->users.Add({{"outcome", std::string(outcome)}}).Increment();
}

void RelayMetrics::agent(std::string_view carrier, std::string_view outcome) {
  impl_->agents.Add({{"carrier", std::string(carrier)}, {"outcome", std::string(outcome)}}).Increment();
}

void RelayMetrics::bytes(uint64_t from_users, uint64_t to_users) {
  impl_->from_users.Increment(static_cast<double>(from_users));
  impl_->to_users.Increment(static_cast<double>(to_users));
}

void RelayMetrics::opened_ms(int64_t ms) {
  impl_->opened.Observe(static_cast<double>(ms) / 1000.0);
}

std::string RelayMetrics::render(const Now& now) const {
  impl_->ids.Set(static_cast<double>(now.ids));
  impl_->links.Set(static_cast<double>(now.links));
  impl_->open_users.Set(static_cast<double>(now.users));
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace pocketfleet::relay
