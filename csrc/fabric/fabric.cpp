#include "fabric/fabric.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sim/interrupt.h"
#include "sim/memory.h"

namespace rostam::fabric {

namespace {

constexpr double kLinkBytes = 64;  // with its places in lists of vertices, as complete graphs were measured to take
constexpr size_t kFirstLinks = 64;
constexpr size_t kMaxLinks = size_t{1} << 30;

class RuleWithDetours : public PathRule {
 public:
  RuleWithDetours(std::shared_ptr<const PathRule> rule, std::shared_ptr<const PathRule> detours)
      : rule_(std::move(rule)), detours_(std::move(detours)), first_(rule_->num_phases()) {}
  int32_t num_phases() const override { return first_ + detours_->num_phases(); }
  int32_t next_phase(int32_t phase, const Link& link) const override {
    if (phase < first_) return rule_->next_phase(phase, link);
    const int32_t next = detours_->next_phase(phase - first_, link);
    return next < 0 ? -1 : first_ + next;
  }
  int32_t detour_phase() const override { return first_; }

 private:
  std::shared_ptr<const PathRule> rule_, detours_;
  int32_t first_;
};

}  // namespace

std::shared_ptr<const PathRule> make_rule_with_detours(std::shared_ptr<const PathRule> rule,
                                                       std::shared_ptr<const PathRule> detours) {
  return std::make_shared<RuleWithDetours>(std::move(rule), std::move(detours));
}

// A quarter more whenever they are full, looked at before it is taken.
void Blueprint::make_room(size_t more) {
  if (links.size() % 64 < more) poll_interrupt();
  const size_t count = links.size() + more;
  if (count <= links.capacity()) return;
  const size_t next = count + links.size() / 4 + kFirstLinks;
  const std::string what = "fabric " + name + " has " + std::to_string(count) + " links or more, which";
  const std::string advice = "take a smaller fabric";
  if (count > kMaxLinks) {
    ROSTAM_THROW(ConfigError, what << " are beyond " << kMaxLinks << ", the most of a fabric; " << advice);
  }
  require_memory(static_cast<double>(next) * kLinkBytes, what, advice);
  links.reserve(next);
}

void Blueprint::add_cable(int32_t a, int32_t b, double capacity_bytes_per_s, SimTime latency, int32_t forth,
                          int32_t back) {
  make_room(2);
  links.push_back({a, b, capacity_bytes_per_s, latency, forth, num_cables_});
  links.push_back({b, a, capacity_bytes_per_s, latency, back, num_cables_});
  ++num_cables_;
}

void Blueprint::add_link(int32_t src, int32_t dst, double capacity_bytes_per_s, SimTime latency) {
  make_room(1);
  links.push_back({src, dst, capacity_bytes_per_s, latency, -1, num_cables_});
  ++num_cables_;
}

Fabric::Fabric(Blueprint blueprint) : blueprint_(std::move(blueprint)) {
  validate();
  for (const Link& link : links()) {
    if (!is_inside_server(link)) num_cables_ = std::max(num_cables_, link.cable + 1);
  }
  link_failed_.assign(links().size(), 0);
  vertex_failed_.assign(static_cast<size_t>(num_vertices()), 0);
  is_closed_form_valid_ = blueprint_.distance != nullptr && blueprint_.path_rule == nullptr;
  index_links();
}

bool Fabric::is_inside_server(const Link& link) const {
  const bool is_of_accelerator = std::min(link.src, link.dst) < num_accelerators();
  const int32_t other = std::max(link.src, link.dst);
  if (other >= num_accelerators() + num_switches()) return is_of_accelerator;
  return blueprint_.num_server_parts > 0 && other < num_accelerators();
}

void Fabric::validate() const {
  if (num_accelerators() < 1) ROSTAM_THROW(ConfigError, "fabric " << name() << " has no accelerator; it needs one");
  InterruptPoll poll;
  for (const Link& link : links()) {
    poll();
    for (const int32_t end : {link.src, link.dst}) {
      if (end < 0 || end >= num_vertices()) {
        ROSTAM_THROW(ConfigError, "fabric.links[" << link.cable << "] ends at vertex " << end
                                                  << "; the vertices are 0.." << num_vertices() - 1);
      }
    }
    if (link.src == link.dst) {
      ROSTAM_THROW(ConfigError, "fabric.links[" << link.cable << "] joins vertex " << link.src << " to itself");
    }
    if (!(link.capacity_bytes_per_s > 0)) {
      ROSTAM_THROW(ConfigError, "fabric.links[" << link.cable << "] has bandwidth " << link.capacity_bytes_per_s
                                                << " bytes/s; it must be > 0");
    }
    if (link.latency < SimTime::zero()) {
      ROSTAM_THROW(ConfigError, "fabric.links[" << link.cable << "] has a negative latency");
    }
  }
}

namespace {

// Fills CSR arrays with the working links of every vertex, sorted by neighbour.
void index_by(const std::vector<Link>& links, const std::vector<uint8_t>& failed, size_t num_vertices, bool by_src,
              std::vector<Hop>& hops, std::vector<int64_t>& begin) {
  begin.assign(num_vertices + 1, 0);
  for (size_t i = 0; i < links.size(); ++i) {
    if (!failed[i]) ++begin[static_cast<size_t>(by_src ? links[i].src : links[i].dst) + 1];
  }
  for (size_t v = 0; v < num_vertices; ++v) begin[v + 1] += begin[v];
  hops.assign(static_cast<size_t>(begin.back()), Hop());
  std::vector<int64_t> next(begin.begin(), begin.end() - 1);
  InterruptPoll poll;
  for (size_t i = 0; i < links.size(); ++i) {
    poll();
    if (failed[i]) continue;
    const int32_t here = by_src ? links[i].src : links[i].dst;
    const int32_t there = by_src ? links[i].dst : links[i].src;
    hops[static_cast<size_t>(next[static_cast<size_t>(here)]++)] = {static_cast<int32_t>(i), there};
  }
  for (size_t v = 0; v < num_vertices; ++v) {
    poll();
    std::sort(hops.begin() + begin[v], hops.begin() + begin[v + 1], [](const Hop& a, const Hop& b) {
      return a.neighbour != b.neighbour ? a.neighbour < b.neighbour : a.link < b.link;
    });
  }
}

}  // namespace

void Fabric::index_links() {
  const size_t num = static_cast<size_t>(num_vertices());
  index_by(links(), link_failed_, num, true, out_, out_begin_);
  index_by(links(), link_failed_, num, false, in_, in_begin_);
}

std::vector<int32_t> Fabric::healthy_accelerators() const {
  std::vector<int32_t> healthy;
  for (int32_t a = 0; a < num_accelerators(); ++a) {
    if (!is_vertex_failed(a)) healthy.push_back(a);
  }
  return healthy;
}

std::vector<int32_t> Fabric::search_distances(int32_t target, const PathRule* rule) const {
  const int32_t phases = rule == nullptr ? 1 : rule->num_phases();
  const int32_t detour = rule == nullptr ? -1 : rule->detour_phase();
  poll_interrupt();
  std::vector<int32_t> hops(static_cast<size_t>(num_vertices()) * static_cast<size_t>(phases), kUnreachable);
  if (is_vertex_failed(target)) return hops;
  search_phases(target, rule, 0, detour < 0 ? phases : detour, hops);
  if (detour < 0) return hops;
  for (int32_t v = 0; v < num_vertices(); ++v) {
    if (is_vertex_failed(v) || hops[static_cast<size_t>(v * phases)] != kUnreachable) continue;
    search_phases(target, rule, detour, phases, hops);
    break;
  }
  return hops;
}

int32_t Fabric::distance_from(int32_t vertex, const std::vector<int32_t>& distances) const {
  const int32_t direct = distances[static_cast<size_t>(vertex * num_phases())];
  const int32_t detour = path_rule() == nullptr ? -1 : path_rule()->detour_phase();
  if (direct != kUnreachable || detour < 0) return direct;
  return distances[static_cast<size_t>(vertex * num_phases() + detour)];
}

void Fabric::search_phases(int32_t target, const PathRule* rule, int32_t first, int32_t end,
                           std::vector<int32_t>& hops) const {
  const int32_t phases = rule == nullptr ? 1 : rule->num_phases();
  std::vector<int32_t> queue;
  for (int32_t phase = first; phase < end; ++phase) {
    queue.push_back(target * phases + phase);
    hops[static_cast<size_t>(queue.back())] = 0;
  }
  for (size_t next = 0; next < queue.size(); ++next) {
    const int32_t vertex = queue[next] / phases, phase = queue[next] % phases;
    if (vertex != target && !can_forward(vertex)) continue;
    for (const Hop& hop : in(vertex)) {
      for (int32_t before = first; before < end; ++before) {
        int32_t& there = hops[static_cast<size_t>(hop.neighbour * phases + before)];
        if (there != kUnreachable) continue;
        if (rule != nullptr && rule->next_phase(before, links()[static_cast<size_t>(hop.link)]) != phase) continue;
        there = hops[static_cast<size_t>(queue[next])] + 1;
        queue.push_back(hop.neighbour * phases + before);
      }
    }
  }
}

}  // namespace rostam::fabric
