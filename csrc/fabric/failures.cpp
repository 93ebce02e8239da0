// Failed parts: a fabric derived from another by taking parts away.
#include <algorithm>

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
  // Accelerators that forward nothing are missed by nobody else.
  const bool are_paths_whole = failures_.switches.empty() && failures_.cables.empty() &&
                               (failures_.accelerators.empty() || !blueprint_.accelerators_forward);
  is_closed_form_valid_ = is_closed_form_valid_ && are_paths_whole;
}

void Fabric::split_bundles() {
  for (Link& link : blueprint_.links) link.bundle = -1;
  blueprint_.bundles_collapse = false;
}

std::shared_ptr<const Fabric> Fabric::with_random_failures(const std::string& kind, int32_t count,
                                                           uint64_t seed) const {
  Failures more;
  std::vector<int32_t> boards;
  std::vector<int32_t>* drawn = nullptr;
  std::vector<int32_t> working;
  if (kind == "switches") {
    drawn = &more.switches;
    for (int32_t s = 0; s < num_switches(); ++s) {
      if (!is_vertex_failed(num_accelerators() + s)) working.push_back(s);
    }
  } else if (kind == "links") {
    drawn = &more.cables;
    std::vector<uint8_t> works(static_cast<size_t>(num_cables()), 0);
    for (size_t i = 0; i < links().size(); ++i) {
      if (links()[i].cable < num_cables()) works[static_cast<size_t>(links()[i].cable)] |= !link_failed_[i];
    }
    for (int32_t c = 0; c < num_cables(); ++c) {
      if (works[static_cast<size_t>(c)]) working.push_back(c);
    }
  } else if (kind == "accelerators") {
    drawn = &more.accelerators;
    working = healthy_accelerators();
  } else if (kind == "boards" && num_boards() > 0) {
    drawn = &boards;
    for (const int32_t a : healthy_accelerators()) {
      const int32_t board = a / blueprint_.board_size;
      if (working.empty() || working.back() != board) working.push_back(board);
    }
  } else {
    ROSTAM_THROW(ConfigError, "failures.kind is '" << kind << "'; allowed: switches, links, accelerators"
                                                   << (num_boards() > 0 ? ", boards" : ""));
  }
  if (count < 0 || static_cast<size_t>(count) > working.size()) {
    ROSTAM_THROW(ConfigError, "failures." << kind << " is " << count << "; allowed: 0.." << working.size()
                                          << ", the working " << kind);
  }
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    std::swap(working[i], working[i + mix(mix(seed) + i) % (working.size() - i)]);
    drawn->push_back(working[i]);
  }
  if (!boards.empty()) more.accelerators = accelerators_on(boards);
  return with_failures(more);
}

}  // namespace rostam::fabric
