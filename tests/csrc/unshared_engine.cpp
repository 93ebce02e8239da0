// unshared: latency and serialisation alone. A transfer moves at the least of capacity / share over its links as if
// nothing else used them, so links may carry more than their capacity: for tests of what sessions rely on.
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "network/registry.h"

namespace rostam::network {

namespace {

class UnsharedNetwork : public Network {
 public:
  UnsharedNetwork(EventQueue& queue, const LinkTable& links, NetworkClient& client)
      : queue_(queue), client_(client), ends_(*this), deliveries_(*this) {
    for (int32_t l = 0; l < links.size(); ++l) links_.emplace_back(links[l].bytes_per_s);
  }

  RouteId add_route(const routing::Route& route, uint64_t) override {
    routes_.push_back(route);
    return static_cast<RouteId>(routes_.size() - 1);
  }

  TransferId start(const Transfer& transfer) override {
    const TransferId id = next_++;
    State& state = transfers_[id];
    state.transfer = transfer;
    make_parts(state, transfer.bytes);
    begin(id, state);
    return id;
  }
  TransferId resume(const Transfer&, SimTime) override {
    ROSTAM_THROW(InternalError, "unshared is not exact when alone: nothing is resumed on it");
  }
  void cancel(TransferId id) override {
    settle(transfers_.at(id));
    end_busy(transfers_.at(id));
    transfers_.erase(id);
  }
  void set_route(TransferId id, RouteId route) override {
    State& state = transfers_.at(id);
    settle(state);
    end_busy(state);
    double left = 0;
    for (const Part& part : state.parts) left += part.left;
    state.transfer.route = route;
    make_parts(state, static_cast<int64_t>(std::ceil(left)));
    begin(id, state);
  }
  void set_capacity(int32_t link, double bytes_per_s) override {
    Link& changed = link_at(link);
    for (auto& [id, state] : transfers_) settle(state);
    changed.bytes_per_s = bytes_per_s;
    for (auto& [id, state] : transfers_) expect(id, state);
  }
  int32_t add_links(const std::vector<EngineLink>& links) override {
    const auto first = static_cast<int32_t>(links_.size());
    for (const EngineLink& link : links) links_.emplace_back(link.bytes_per_s);
    return first;
  }
  void remove_links(const std::vector<int32_t>& links) override {
    for (const int32_t link : links) {
      set_capacity(link, 0);
      links_[static_cast<size_t>(link)].is_removed = true;
    }
  }
  bool is_endless(TransferId id) const override {
    const std::vector<Part>& parts = transfers_.at(id).parts;
    return std::any_of(parts.begin(), parts.end(),
                       [](const Part& part) { return part.rate > 0 && part.finish == SimTime::never(); });
  }
  double backlog(TransferId id) const override {
    double left = 0;
    for (const Part& part : transfers_.at(id).parts) {
      left += std::max(0.0, part.left - part.rate * (queue_.now() - part.updated).seconds());
    }
    return left;
  }
  double backlog(int32_t src, int32_t dst) const override {
    double left = 0;
    for (const auto& [id, state] : transfers_) {
      const routing::Route& route = routes_[state.transfer.route];
      if (route.src == src && route.dst == dst) left += backlog(id);
    }
    return left;
  }
  double bytes_waiting(int32_t link) const override {
    double bytes = 0;
    for (const auto& [id, state] : transfers_) {
      for (const Part& part : state.parts) {
        const double left = std::max(0.0, part.left - part.rate * (queue_.now() - part.updated).seconds());
        for (size_t h = part.first_link; h < part.end_link; ++h) {
          const routing::LinkShare& hop = routes_[state.transfer.route].links[h];
          if (hop.link == link) bytes += hop.share * left;
        }
      }
    }
    return bytes;
  }
  NetworkStats stats() const override {
    NetworkStats stats;
    for (const Link& link : links_) {
      stats.link_bytes.push_back(link.bytes);
      const SimTime since = link.num_users > 0 ? queue_.now() - link.busy_since : SimTime::zero();
      stats.link_busy_s.push_back((link.busy + since).seconds());
    }
    for (const auto& [id, state] : transfers_) {
      for (const Part& part : state.parts) {
        const double moved = std::min(part.left, part.rate * (queue_.now() - part.updated).seconds());
        for (size_t h = part.first_link; h < part.end_link; ++h) {
          const routing::LinkShare& hop = routes_[state.transfer.route].links[h];
          stats.link_bytes[static_cast<size_t>(hop.link)] += moved * hop.share;
        }
      }
    }
    stats.num_active = static_cast<int64_t>(transfers_.size());
    return stats;
  }
  int32_t num_links() const override { return static_cast<int32_t>(links_.size()); }

 private:
  struct Link {
    explicit Link(double rate) : bytes_per_s(rate) {}
    double bytes_per_s;
    double bytes = 0;
    int32_t num_users = 0;
    SimTime busy_since, busy;
    bool is_removed = false;
  };
  struct Part {  // in one lane
    Part(size_t first, size_t end, SimTime alpha, double bytes)
        : first_link(first), end_link(end), latency(alpha), left(bytes) {}
    size_t first_link, end_link;
    SimTime latency;
    double left, rate = 0;
    SimTime updated, finish = SimTime::never();
  };
  struct State {
    Transfer transfer;
    std::vector<Part> parts;
    uint32_t version = 0;
  };
  class Ends : public EventHandler {
   public:
    explicit Ends(UnsharedNetwork& owner) : owner_(owner) {}
    void on_event(uint64_t payload) override { owner_.end(payload); }

   private:
    UnsharedNetwork& owner_;
  };
  class Deliveries : public EventHandler {
   public:
    explicit Deliveries(UnsharedNetwork& owner) : owner_(owner) {}
    void on_event(uint64_t token) override { owner_.client_.on_delivered(token); }

   private:
    UnsharedNetwork& owner_;
  };

  Link& link_at(int32_t link) {
    if (link < 0 || link >= num_links() || links_[static_cast<size_t>(link)].is_removed) {
      ROSTAM_THROW(ConfigError, "link " << link << " does not exist; links are 0 to " << num_links() - 1);
    }
    return links_[static_cast<size_t>(link)];
  }

  void make_parts(State& state, int64_t bytes) {
    const routing::Route& route = routes_[state.transfer.route];
    state.parts.clear();
    if (route.lanes.empty()) {
      state.parts.emplace_back(0, route.links.size(), route.latency, static_cast<double>(bytes));
      return;
    }
    const std::vector<int64_t> split = routing::lane_bytes(route, bytes);
    for (size_t l = 0; l < split.size(); ++l) {
      const routing::Lane& lane = route.lanes[l];
      state.parts.emplace_back(lane.first_link, lane.end_link, lane.latency, static_cast<double>(split[l]));
    }
  }

  void begin(TransferId id, State& state) {
    each_link(state, [this](Link& link) {
      if (link.num_users++ == 0) link.busy_since = queue_.now();
    });
    for (Part& part : state.parts) part.updated = queue_.now();
    expect(id, state);
  }
  void end_busy(State& state) {
    each_link(state, [this](Link& link) {
      if (--link.num_users == 0) link.busy += queue_.now() - link.busy_since;
    });
  }
  template <typename Change>
  void each_link(State& state, Change change) {
    for (const Part& part : state.parts) {
      for (size_t h = part.first_link; h < part.end_link; ++h) {
        change(links_[static_cast<size_t>(routes_[state.transfer.route].links[h].link)]);
      }
    }
  }

  // Counts what has moved since the last change of rates.
  void settle(State& state) {
    for (Part& part : state.parts) {
      const double moved = part.finish <= queue_.now()
                               ? part.left
                               : std::min(part.left, part.rate * (queue_.now() - part.updated).seconds());
      part.left -= moved;
      part.updated = queue_.now();
      for (size_t h = part.first_link; h < part.end_link; ++h) {
        const routing::LinkShare& hop = routes_[state.transfer.route].links[h];
        links_[static_cast<size_t>(hop.link)].bytes += moved * hop.share;
      }
    }
  }

  void expect(TransferId id, State& state) {
    SimTime last = SimTime::zero();
    for (Part& part : state.parts) {
      part.rate = state.transfer.rate_cap;
      for (size_t h = part.first_link; h < part.end_link; ++h) {
        const routing::LinkShare& hop = routes_[state.transfer.route].links[h];
        part.rate = std::min(part.rate, links_[static_cast<size_t>(hop.link)].bytes_per_s / hop.share);
      }
      part.finish = part.left <= 0   ? part.updated
                    : part.rate <= 0 ? SimTime::never()
                                     : transmit_end(part.updated, part.left, part.rate);
      last = std::max(last, part.finish);
    }
    ++state.version;
    if (last < SimTime::never()) {
      queue_.schedule(std::max(last, queue_.now()), Priority::kNormal, &ends_, uint64_t{state.version} << 32 | id);
    }
  }

  void end(uint64_t payload) {
    const auto found = transfers_.find(static_cast<TransferId>(payload));
    if (found == transfers_.end() || found->second.version != static_cast<uint32_t>(payload >> 32)) return;
    State& state = found->second;
    settle(state);
    end_busy(state);
    SimTime delivery = queue_.now();
    for (const Part& part : state.parts) delivery = std::max(delivery, part.finish + part.latency);
    const uint64_t token = state.transfer.token;
    transfers_.erase(found);
    queue_.schedule(delivery, Priority::kNormal, &deliveries_, token);
    client_.on_sent(token);
  }

  EventQueue& queue_;
  NetworkClient& client_;
  Ends ends_;
  Deliveries deliveries_;
  std::vector<Link> links_;
  std::vector<routing::Route> routes_;
  std::unordered_map<TransferId, State> transfers_;
  TransferId next_ = 0;
};

}  // namespace

std::unique_ptr<Network> make_unshared_network(EventQueue& queue, const LinkTable& links, NetworkClient& client) {
  return std::make_unique<UnsharedNetwork>(queue, links, client);
}

EngineTraits unshared_engine_traits() {
  EngineTraits traits;
  traits.summary = "latency and serialisation, no sharing (tests)";
  return traits;
}

}  // namespace rostam::network
