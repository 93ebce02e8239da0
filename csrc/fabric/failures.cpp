// Failed parts: a fabric derived from another by taking parts away.
#include <algorithm>
#include <numeric>
#include <utility>

#include "fabric/fabric.h"
#include "sim/random.h"

namespace rostam::fabric {

namespace {

void check_ids(const std::vector<int32_t>& ids, int32_t count, const char* kind) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= count) {
      ROSTAM_THROW(ConfigError, "failures." << kind << " names " << id << "; this fabric's " << kind << " are "
                                            << (count ? "0.." + std::to_string(count - 1) : std::string("none")));
    }
  }
}

void merge(std::vector<int32_t>& ids, const std::vector<int32_t>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace

std::shared_ptr<const Fabric> Fabric::with_failures(const Failures& more) const {
  check_ids(more.switches, num_switches(), "switches");
  check_ids(more.cables, num_cables(), "links");
  check_ids(more.accelerators, num_accelerators(), "accelerators");
  auto changed = std::make_shared<Fabric>(*this);
  merge(changed->failures_.switches, more.switches);
  merge(changed->failures_.cables, more.cables);
  merge(changed->failures_.accelerators, more.accelerators);
  changed->fail_parts();
  changed->index_links();
  return changed;
}

std::vector<int32_t> Fabric::accelerators_on(const std::vector<int32_t>& boards) const {
  if (!boards.empty() && num_boards() == 0) {
    ROSTAM_THROW(ConfigError, "failures.boards names " << boards.front() << "; fabric " << name()
                                                       << " has no boards, fail accelerators or switches instead");
  }
  check_ids(boards, num_boards(), "boards");
  std::vector<int32_t> accelerators;
  for (const int32_t board : boards) {
    for (int32_t i = 0; i < blueprint_.board_size; ++i) accelerators.push_back(board * blueprint_.board_size + i);
  }
  return accelerators;
}

void Fabric::fail_parts() {
  for (const int32_t a : failures_.accelerators) vertex_failed_[static_cast<size_t>(a)] = 1;
  for (const int32_t s : failures_.switches) vertex_failed_[static_cast<size_t>(num_accelerators() + s)] = 1;
  bool are_bundles_whole = true;
  for (size_t i = 0; i < links().size(); ++i) {
    const Link& link = links()[i];
    const bool is_cut = std::binary_search(failures_.cables.begin(), failures_.cables.end(), link.cable);
    if (!is_cut && !is_vertex_failed(link.src) && !is_vertex_failed(link.dst)) continue;
    link_failed_[i] = 1;
    if (link.bundle >= 0) are_bundles_whole = false;
  }
  if (!are_bundles_whole) split_bundles();
  // Accelerators that forward nothing are missed by no other part.
  const bool are_paths_whole = failures_.switches.empty() && failures_.cables.empty() &&
                               (failures_.accelerators.empty() || !blueprint_.accelerators_forward);
  is_closed_form_valid_ = is_closed_form_valid_ && are_paths_whole;
  if (blueprint_.detour_rule == nullptr) return;
  blueprint_.path_rule = make_rule_with_detours(blueprint_.path_rule, std::exchange(blueprint_.detour_rule, nullptr));
}

void Fabric::split_bundles() {
  for (Link& link : blueprint_.links) link.bundle = -1;
  blueprint_.bundles_collapse = false;
}

bool Fabric::is_host_cable(const Link& link) const {
  const int32_t lower = std::min(link.src, link.dst), upper = std::max(link.src, link.dst);
  const bool is_accelerators = lower < num_accelerators() || upper >= num_accelerators() + num_switches();
  return is_accelerators && !blueprint_.accelerators_forward;
}

std::vector<int32_t> Fabric::working_parts(const std::string& kind, const std::string& scope) const {
  if (scope != "network" && scope != "host" && scope != "all") {
    ROSTAM_THROW(ConfigError, "failures.scope is '" << scope << "'; allowed: network, host, all");
  }
  std::vector<int32_t> working;
  if (kind == "switches") {
    for (int32_t s = 0; s < num_switches(); ++s) {
      if (!is_vertex_failed(num_accelerators() + s)) working.push_back(s);
    }
  } else if (kind == "links") {
    std::vector<uint8_t> works(static_cast<size_t>(num_cables()), 0);
    for (size_t i = 0; i < links().size(); ++i) {
      const Link& link = links()[i];
      const bool is_meant = scope == "all" || is_host_cable(link) == (scope == "host");
      if (link.cable < num_cables() && is_meant) works[static_cast<size_t>(link.cable)] |= !link_failed_[i];
    }
    for (int32_t c = 0; c < num_cables(); ++c) {
      if (works[static_cast<size_t>(c)]) working.push_back(c);
    }
  } else if (kind == "accelerators") {
    working = healthy_accelerators();
  } else if (kind == "boards" && num_boards() > 0) {
    for (const int32_t a : healthy_accelerators()) {
      const int32_t board = a / blueprint_.board_size;
      if (working.empty() || working.back() != board) working.push_back(board);
    }
  } else {
    ROSTAM_THROW(ConfigError, "failures.kind is '" << kind << "'; allowed: switches, links, accelerators"
                                                   << (num_boards() > 0 ? ", boards" : ""));
  }
  return working;
}

namespace {

// Marks everything that a walk from `first` reaches along `hops_of`; an accelerator goes on only where it may forward.
template <typename HopsOf>
void mark_reached(const Fabric& fabric, int32_t first, uint8_t bit, HopsOf hops_of, std::vector<uint8_t>& marks,
                  std::vector<int32_t>& reached) {
  reached.assign(1, first);
  marks[static_cast<size_t>(first)] |= bit;
  for (size_t next = 0; next < reached.size(); ++next) {
    const int32_t vertex = reached[next];
    if (vertex != first && !fabric.can_forward(vertex)) continue;
    for (const Hop& hop : hops_of(vertex)) {
      uint8_t& mark = marks[static_cast<size_t>(hop.neighbour)];
      if (mark & bit) continue;
      mark |= bit;
      reached.push_back(hop.neighbour);
    }
  }
}

}  // namespace

std::vector<int32_t> Fabric::connected_sets() const {
  std::vector<int32_t> set_of(static_cast<size_t>(num_accelerators()), -1);
  std::vector<uint8_t> marks(static_cast<size_t>(num_vertices()), 0);
  std::vector<int32_t> forth, back;
  int32_t num_sets = 0;
  for (int32_t a = 0; a < num_accelerators(); ++a) {
    if (set_of[static_cast<size_t>(a)] >= 0) continue;
    mark_reached(*this, a, 1, [this](int32_t v) { return out(v); }, marks, forth);
    mark_reached(*this, a, 2, [this](int32_t v) { return in(v); }, marks, back);
    for (const int32_t v : forth) {
      if (v < num_accelerators() && marks[static_cast<size_t>(v)] == 3 && set_of[static_cast<size_t>(v)] < 0) {
        set_of[static_cast<size_t>(v)] = num_sets;
      }
    }
    for (const int32_t v : forth) marks[static_cast<size_t>(v)] = 0;
    for (const int32_t v : back) marks[static_cast<size_t>(v)] = 0;
    ++num_sets;
  }
  return set_of;
}

// Whether the accelerator and one of the set reach each other. One without a way into the network may still have its
// server, whose accelerators forward nothing for it.
bool Fabric::reaches_set(int32_t accelerator, const std::vector<int32_t>& set_of, int32_t set) const {
  if (set_of[static_cast<size_t>(accelerator)] == set) return true;
  std::vector<uint8_t> marks(static_cast<size_t>(num_vertices()), 0);
  std::vector<int32_t> forth, back;
  mark_reached(*this, accelerator, 1, [this](int32_t v) { return out(v); }, marks, forth);
  mark_reached(*this, accelerator, 2, [this](int32_t v) { return in(v); }, marks, back);
  return std::any_of(forth.begin(), forth.end(), [&](int32_t v) {
    return v < num_accelerators() && marks[static_cast<size_t>(v)] == 3 && set_of[static_cast<size_t>(v)] == set;
  });
}

std::vector<int32_t> Fabric::cut_off() const {
  if (failures_.switches.empty() && failures_.cables.empty() && failures_.accelerators.empty()) return {};
  Fabric intact(*this);
  intact.link_failed_.assign(links().size(), 0);
  intact.vertex_failed_.assign(static_cast<size_t>(num_vertices()), 0);
  intact.index_links();
  const std::vector<int32_t> before = intact.connected_sets(), now = connected_sets();
  std::vector<int32_t> sizes(before.size(), 0);
  for (int32_t a = 0; a < num_accelerators(); ++a) ++sizes[static_cast<size_t>(now[static_cast<size_t>(a)])];
  std::vector<int32_t> num_working(before.size(), 0);
  std::vector<int32_t> largest(before.size(), -1);  // what is left of each set that was
  for (const int32_t a : healthy_accelerators()) {
    int32_t& best = largest[static_cast<size_t>(before[static_cast<size_t>(a)])];
    const int32_t mine = now[static_cast<size_t>(a)];
    if (best < 0 || sizes[static_cast<size_t>(mine)] > sizes[static_cast<size_t>(best)]) best = mine;
    ++num_working[static_cast<size_t>(before[static_cast<size_t>(a)])];
  }
  std::vector<int32_t> lost;
  for (const int32_t a : healthy_accelerators()) {
    const auto was = static_cast<size_t>(before[static_cast<size_t>(a)]);
    const bool has_main_part = 2 * sizes[static_cast<size_t>(largest[was])] > num_working[was];
    if (has_main_part && !reaches_set(a, now, largest[was])) lost.push_back(a);
  }
  return lost;
}

std::vector<int32_t> draw_parts(int32_t num_parts, int32_t count, uint64_t seed) {
  std::vector<int32_t> parts(static_cast<size_t>(num_parts));
  std::iota(parts.begin(), parts.end(), 0);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    std::swap(parts[i], parts[i + mix(mix(seed) + i) % (parts.size() - i)]);
  }
  parts.resize(static_cast<size_t>(count));
  return parts;
}

}  // namespace rostam::fabric
