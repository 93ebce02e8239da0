#include "packet/table_walk.h"

#include <algorithm>
#include <deque>
#include <string>

#include "packet/reduction_table.h"
#include "sim/event_queue.h"
#include "sim/interrupt.h"

namespace rostam::packet {

namespace {

// Operands are below 2^40, so that no sum of members overflows.
constexpr int kOperandBits = 40;

uint64_t mixed(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

void check(bool is_right, const char* key, double value, const char* allowed) {
  if (!is_right) ROSTAM_THROW(ConfigError, "tables." << key << " is " << value << "; it must be " << allowed);
}

class TableWalk : private EventHandler {
 public:
  TableWalk(const TableTrees& trees, const TableOptions& options)
      : trees_(trees),
        options_(options),
        size_(trees.num_members),
        num_addresses_(size_ * options.packets_per_owner),
        num_waves_((options.packets_per_owner - 1) / options.packets_per_wave + 1),
        tables_(static_cast<size_t>(trees.num_vertices), ReductionTable(options.entries)),
        free_ps_(trees.links.size(), 0),
        port_ps_(trees.links.size(), 0) {
    result_.link_bytes.assign(trees.links.size(), 0);
    members_.resize(static_cast<size_t>(size_));
    waiting_.resize(static_cast<size_t>(trees.num_vertices));
    came_.assign(static_cast<size_t>(trees.num_vertices * num_waves_), 0);
    due_ = came_;
    for (int32_t owner = 0; owner < size_; ++owner) plant(owner);
    for (Member& member : members_) {
      member.held.resize(static_cast<size_t>(num_addresses_));
      for (int64_t w = 0; w < num_waves_; ++w) {
        member.wave_left.push_back(packets_of(w) * (options.is_pull ? 1 : size_));
      }
    }
  }

  TableResult run() {
    for (int32_t m = 0; m < size_; ++m) {
      const double skew =
          static_cast<double>(mixed(options_.seed ^ mixed(static_cast<uint64_t>(m) + 1)) >> 11) * 0x1p-53;
      at(static_cast<int64_t>(skew * static_cast<double>(options_.most_skew.ps())), {Kind::kInject, m, {}});
    }
    InterruptPoll poll;
    while (!queue_.is_empty()) {
      poll();
      queue_.run_next();
    }
    check_end();
    return result_;
  }

 private:
  enum class Kind : uint8_t { kInject, kRequest, kRespond, kDrain, kOperand, kAdd, kSum, kWrite, kResult };
  struct Flight {
    Kind kind = Kind::kInject;
    int32_t vertex = 0;  // where it comes to
    Partial data;
  };
  struct Member {
    std::vector<Partial> held;  // by address
    int64_t next = 0;           // address, or packet of its own, that it injects next
    int64_t waves_done = 0;
    std::vector<int64_t> wave_left;  // sums that it awaits
    bool is_stopped = false;         // by its waves
    std::deque<int64_t> responses;   // addresses, while its link is taken
    bool is_draining = false;        // an event will send the next response
  };

  int32_t owner_of(int64_t address) const { return static_cast<int32_t>(address % size_); }
  int64_t wave_of(int64_t address) const { return address / size_ / options_.packets_per_wave; }
  int64_t packets_of(int64_t wave) const {
    const int64_t begin = wave * options_.packets_per_wave;
    return std::min(options_.packets_per_wave, options_.packets_per_owner - begin);
  }
  int64_t operand(int32_t member, int64_t address) const {
    const auto name = static_cast<uint64_t>(address) * static_cast<uint64_t>(size_) + static_cast<uint64_t>(member);
    return static_cast<int64_t>(mixed(options_.seed ^ mixed(name)) >> (64 - kOperandBits)) -
           (int64_t{1} << (kOperandBits - 1));
  }

  // The branches of an owner's tree, and how many members are behind each vertex.
  void plant(int32_t owner) {
    const auto vertices = static_cast<size_t>(trees_.num_vertices);
    const std::vector<int32_t>& parent = trees_.parent[static_cast<size_t>(owner)];
    std::vector<std::vector<int32_t>>& branches = branches_.emplace_back(vertices);
    std::vector<int32_t>& below = below_.emplace_back(vertices, 0);
    const int32_t home = trees_.home[static_cast<size_t>(owner)];
    for (int32_t m = 0; m < size_; ++m) {
      int32_t v = m;
      for (int32_t hops = 0; v != home; ++hops) {
        const int32_t link = parent[static_cast<size_t>(v)];
        if (link < 0 || hops > trees_.num_vertices) {
          ROSTAM_THROW(ConfigError, "no tree leads from accelerator " << m << " to the home switch of " << owner);
        }
        v = trees_.links[static_cast<size_t>(link)].dst;
        ++below[static_cast<size_t>(v)];
      }
    }
    for (int32_t v = 0; v < trees_.num_vertices; ++v) {
      const int32_t link = parent[static_cast<size_t>(v)];
      if (link < 0 || (v >= size_ && below[static_cast<size_t>(v)] == 0)) continue;
      const TableLink& up = trees_.links[static_cast<size_t>(link)];
      branches[static_cast<size_t>(up.dst)].push_back(up.back);
    }
    for (size_t v = 0; v < vertices; ++v) {
      for (int64_t w = 0; w < num_waves_; ++w) {
        due_[v * static_cast<size_t>(num_waves_) + static_cast<size_t>(w)] += below[v] * packets_of(w);
      }
    }
  }
  int32_t up_link(int32_t owner, int32_t vertex) const {
    return trees_.parent[static_cast<size_t>(owner)][static_cast<size_t>(vertex)];
  }
  int32_t home_of(int64_t address) const { return trees_.home[static_cast<size_t>(owner_of(address))]; }
  int32_t link_to_owner(int64_t address) const {
    return trees_.links[static_cast<size_t>(up_link(owner_of(address), owner_of(address)))].back;
  }
  ReductionTable& table(int32_t vertex) { return tables_[static_cast<size_t>(vertex)]; }

  void at(int64_t time_ps, const Flight& flight) {
    if (spare_.empty()) {
      spare_.push_back(flights_.size());
      flights_.emplace_back();
    }
    const size_t id = spare_.back();
    spare_.pop_back();
    flights_[id] = flight;
    queue_.schedule(SimTime::from_ps(time_ps), Priority::kNormal, this, id);
  }
  int64_t now_ps() const { return queue_.now().ps(); }

  // Until the output side of a switch's port has passed a packet on.
  int64_t pass_port(int32_t link, int64_t bytes) {
    int64_t& busy = port_ps_[static_cast<size_t>(link)];
    const double rate = trees_.links[static_cast<size_t>(link)].bytes_per_s * options_.speedup;
    busy = std::max(busy, now_ps()) + (bytes > 0 ? transmit_time(static_cast<double>(bytes), rate).ps() : 0);
    return busy;
  }
  // Members pause behind each packet for what their injection is limited to.
  void send(int32_t link, int64_t bytes, Flight flight) {
    const TableLink& one = trees_.links[static_cast<size_t>(link)];
    const bool is_member = one.src < size_;
    const int64_t ready = is_member ? now_ps() : pass_port(link, bytes);
    int64_t& free = free_ps_[static_cast<size_t>(link)];
    const int64_t took = bytes > 0 ? transmit_time(static_cast<double>(bytes), one.bytes_per_s).ps() : 0;
    const int64_t end = std::max(ready, free) + took;
    free = is_member ? end - took + static_cast<int64_t>(static_cast<double>(took) / options_.injection) : end;
    result_.link_bytes[static_cast<size_t>(link)] += bytes;
    flight.vertex = one.dst;
    at(end + one.latency.ps(), flight);
  }
  void spread(int32_t vertex, Kind kind, int64_t bytes, const Partial& data) {
    for (const int32_t link : branches_[static_cast<size_t>(owner_of(data.address))][static_cast<size_t>(vertex)]) {
      send(link, bytes, {kind, 0, data});
    }
  }

  void on_event(uint64_t payload) override {
    const Flight flight = flights_[payload];
    spare_.push_back(payload);
    switch (flight.kind) {
      case Kind::kInject:
        return inject(flight.vertex);
      case Kind::kRequest:
        return request(flight.vertex, flight.data);
      case Kind::kRespond:
        members_[static_cast<size_t>(flight.vertex)].responses.push_back(flight.data.address);
        return respond(flight.vertex);
      case Kind::kDrain:
        members_[static_cast<size_t>(flight.vertex)].is_draining = false;
        return respond(flight.vertex);
      case Kind::kOperand: {  // to the table at the port over which its sum leaves
        const bool is_home = flight.vertex == home_of(flight.data.address);
        const int32_t port =
            is_home ? link_to_owner(flight.data.address) : up_link(owner_of(flight.data.address), flight.vertex);
        return at(pass_port(port, options_.packet_bytes), {Kind::kAdd, flight.vertex, flight.data});
      }
      case Kind::kAdd:
        return options_.is_pull ? add_response(flight.vertex, flight.data) : add_write(flight.vertex, flight.data);
      case Kind::kSum:
        finish_of_wave(flight.vertex, flight.data.address);
        return send(up_link(flight.vertex, flight.vertex), options_.packet_bytes, {Kind::kWrite, 0, flight.data});
      case Kind::kWrite:
        return spread(flight.vertex, Kind::kResult, options_.packet_bytes, flight.data);
      case Kind::kResult:
        if (flight.vertex < size_) return keep(flight.vertex, flight.data);
        return spread(flight.vertex, Kind::kResult, options_.packet_bytes, flight.data);
    }
  }

  void inject(int32_t m) {
    Member& member = members_[static_cast<size_t>(m)];
    const int64_t end = options_.is_pull ? options_.packets_per_owner : num_addresses_;
    if (member.next == end) return;
    const int64_t address = options_.is_pull ? member.next * size_ + m : member.next;
    member.is_stopped = wave_of(address) >= member.waves_done + options_.waves;
    if (member.is_stopped) return;
    ++member.next;
    const int32_t link = up_link(owner_of(address), m);
    if (options_.is_pull) {
      send(link, options_.request_bytes, {Kind::kRequest, 0, {address, 0, 0}});
    } else {
      send(link, options_.packet_bytes, {Kind::kOperand, 0, {address, operand(m, address), 1}});
    }
    at(std::max(now_ps(), free_ps_[static_cast<size_t>(link)]), {Kind::kInject, m, {}});
  }

  // A request, at a switch or where it leads.
  void request(int32_t vertex, const Partial& data) {
    if (vertex < size_) return at(now_ps() + options_.memory.ps(), {Kind::kRespond, vertex, data});
    if (!table(vertex).is_full()) {
      open(vertex, data.address);
    } else if (vertex == home_of(data.address)) {
      waiting_[static_cast<size_t>(vertex)].push_back(data);
      return;
    } else {
      ++result_.num_passed;
    }
    spread(vertex, Kind::kRequest, options_.request_bytes, data);
  }
  // Sends a response once the link is free: what a member writes itself goes ahead of those that wait.
  void respond(int32_t m) {
    Member& member = members_[static_cast<size_t>(m)];
    if (member.responses.empty() || member.is_draining) return;
    const int64_t address = member.responses.front();
    const int32_t link = up_link(owner_of(address), m);
    if (free_ps_[static_cast<size_t>(link)] <= now_ps()) {
      member.responses.pop_front();
      send(link, options_.packet_bytes, {Kind::kOperand, 0, {address, operand(m, address), 1}});
    }
    member.is_draining = true;
    at(std::max(now_ps(), free_ps_[static_cast<size_t>(link)]), {Kind::kDrain, m, {}});
  }
  void open(int32_t vertex, int64_t address) {
    table(vertex).open(address);
    result_.most_entries = std::max(result_.most_entries, table(vertex).size());
  }

  void add_response(int32_t vertex, const Partial& data) {
    if (!table(vertex).has(data.address)) return hand_on(vertex, data);
    const int32_t expected = below_[static_cast<size_t>(owner_of(data.address))][static_cast<size_t>(vertex)];
    if (table(vertex).add(data) < expected) return;
    hand_on(vertex, table(vertex).take(data.address));
    std::deque<Partial>& waiting = waiting_[static_cast<size_t>(vertex)];
    if (waiting.empty()) return;
    const Partial next = waiting.front();
    waiting.pop_front();
    request(vertex, next);
  }

  void add_write(int32_t vertex, const Partial& data) {
    ReductionTable& own = table(vertex);
    if (!own.has(data.address)) {
      if (own.is_full()) evict(vertex);
      open(vertex, data.address);
    }
    const int32_t expected = below_[static_cast<size_t>(owner_of(data.address))][static_cast<size_t>(vertex)];
    if (own.add(data) == expected) hand_on(vertex, own.take(data.address));
    const int64_t wave = wave_of(data.address);
    const auto place = static_cast<size_t>(vertex * num_waves_ + wave);
    came_[place] += data.count;
    if (came_[place] == due_[place]) flush(vertex, wave);
  }
  void evict(int32_t vertex) {
    ReductionTable& own = table(vertex);
    const auto drawn = mixed(options_.seed ^ mixed(static_cast<uint64_t>(result_.num_evicted)));
    const int64_t n = options_.draws_victims ? static_cast<int64_t>(drawn % static_cast<uint64_t>(own.size())) : 0;
    ++result_.num_evicted;
    hand_on(vertex, own.take(own.oldest(n)));
  }
  void flush(int32_t vertex, int64_t wave) {
    std::vector<int64_t> left;
    for (const Partial& one : table(vertex).entries()) {
      if (wave_of(one.address) == wave) left.push_back(one.address);
    }
    for (const int64_t address : left) hand_on(vertex, table(vertex).take(address));
  }

  // What a table is through with: to the next hop; from home a pull's to its owner, a push's to all.
  void hand_on(int32_t vertex, const Partial& data) {
    if (vertex != home_of(data.address)) {
      send(up_link(owner_of(data.address), vertex), options_.packet_bytes, {Kind::kOperand, 0, data});
    } else if (options_.is_pull) {
      ROSTAM_CHECK(data.count == size_, "a sum of " << data.count << " operands goes to its owner");
      send(link_to_owner(data.address), options_.packet_bytes, {Kind::kSum, 0, data});
    } else {
      spread(vertex, Kind::kResult, options_.packet_bytes, data);
    }
  }

  void keep(int32_t m, const Partial& data) {
    Partial& held = members_[static_cast<size_t>(m)].held[static_cast<size_t>(data.address)];
    held.sum += data.sum;
    held.count += data.count;
    ROSTAM_CHECK(held.count <= size_, "accelerator " << m << " gets " << held.count << " operands of " << size_);
    if (held.count < size_) return;
    result_.time = queue_.now();
    if (!options_.is_pull) finish_of_wave(m, data.address);
  }
  void finish_of_wave(int32_t m, int64_t address) {
    Member& member = members_[static_cast<size_t>(m)];
    --member.wave_left[static_cast<size_t>(wave_of(address))];
    while (member.waves_done < num_waves_ && member.wave_left[static_cast<size_t>(member.waves_done)] == 0) {
      ++member.waves_done;
    }
    if (member.is_stopped) inject(m);
  }

  void check_end() const {
    for (int64_t address = 0; address < num_addresses_; ++address) {
      int64_t sum = 0;
      for (int32_t m = 0; m < size_; ++m) sum += operand(m, address);
      for (const Member& member : members_) {
        const Partial& held = member.held[static_cast<size_t>(address)];
        ROSTAM_CHECK(held.count == size_ && held.sum == sum,
                     "address " << address << " is " << held.sum << " of " << held.count << " operands, not " << sum);
      }
    }
    for (const ReductionTable& one : tables_) ROSTAM_CHECK(one.size() == 0, one.size() << " entries are left");
    for (size_t k = 0; k < trees_.links.size(); ++k) {
      const double most = trees_.links[k].bytes_per_s * result_.time.seconds() * (1 + 1e-9);
      ROSTAM_CHECK(static_cast<double>(result_.link_bytes[k]) <= most, "link " << k << " carries more than its rate");
    }
  }

  const TableTrees& trees_;
  TableOptions options_;
  int32_t size_;
  int64_t num_addresses_, num_waves_;
  EventQueue queue_;
  std::vector<ReductionTable> tables_;                       // by vertex
  std::vector<int64_t> free_ps_, port_ps_;                   // of links, and of the output side before them
  std::vector<std::vector<std::vector<int32_t>>> branches_;  // links, by owner and vertex
  std::vector<std::vector<int32_t>> below_;                  // members, by owner and vertex
  std::vector<int64_t> came_, due_;                          // operands of a push, by vertex and wave
  std::vector<Member> members_;
  std::vector<std::deque<Partial>> waiting_;  // requests, by vertex
  std::vector<Flight> flights_;
  std::vector<size_t> spare_;
  TableResult result_;
};

}  // namespace

TableResult walk_tables(const TableTrees& trees, const TableOptions& options) {
  check(options.packets_per_owner >= 1, "packets_per_owner", static_cast<double>(options.packets_per_owner), ">= 1");
  check(options.packet_bytes >= 1, "packet_bytes", static_cast<double>(options.packet_bytes), ">= 1");
  check(options.request_bytes >= 0, "request_bytes", static_cast<double>(options.request_bytes), ">= 0");
  check(options.entries >= 1, "entries", static_cast<double>(options.entries), ">= 1");
  check(options.speedup > 0, "speedup", options.speedup, "> 0");
  check(options.injection > 0 && options.injection <= 1, "injection", options.injection, "above 0 and at most 1");
  check(options.packets_per_wave >= 1, "packets_per_wave", static_cast<double>(options.packets_per_wave), ">= 1");
  check(options.waves >= 1, "waves", static_cast<double>(options.waves), ">= 1");
  return TableWalk(trees, options).run();
}

}  // namespace rostam::packet
