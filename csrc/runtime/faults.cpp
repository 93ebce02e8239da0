#include "runtime/faults.h"

#include <algorithm>

namespace rostam::runtime {

using control::Part;
using control::PartKind;

Faults::Faults(const routing::RouteTable& routes)
    : num_accelerators_(routes.num_accelerators()), is_lost_(routes.num_accelerators(), 0) {
  int32_t plane_class = 0;
  std::vector<int32_t> cables;
  for (const routing::PlaneClass& planes : routes.planes()) {
    const fabric::Fabric& fabric = planes.policy->fabric();
    num_switches_.push_back(fabric.num_switches());
    for (int32_t a = 0; a < num_accelerators_; ++a) {
      if (fabric.is_vertex_failed(a)) is_lost_[a] = 1;
    }
    const routing::IdLists& lists = planes.policy->links().members;
    links_.reserve(links_.size() + lists.size());
    for (size_t list = 0; list < lists.size(); ++list) {
      const routing::IdSpan members = lists[list];
      const fabric::Link& link = fabric.links()[members.front()];
      const auto index = static_cast<int32_t>(links_.size());
      const bool is_removed = fabric.is_link_failed(members.front());
      links_.push_back({link.src, link.dst, plane_class, routes.links().capacities[index], 0, is_removed});
      cables.clear();
      for (const int32_t member : members) cables.push_back(fabric.links()[member].cable);
      cables_.add({cables.data(), cables.data() + cables.size()});
    }
    ++plane_class;
  }
}

Faults::Key Faults::key_of(const Part& part) {
  return {part.kind, part.id, part.kind == PartKind::kSwitch ? part.plane_class : 0};
}

void Faults::add_link(int32_t src, int32_t dst, double bytes_per_s) {
  Link link;
  link.src = src;
  link.dst = dst;
  link.bytes_per_s = bytes_per_s;
  for (const int32_t end : {src, dst}) {
    const auto found = failed_.find({PartKind::kAccelerator, end, 0});
    if (found != failed_.end()) link.num_failures += static_cast<int32_t>(found->second.size());
  }
  links_.push_back(link);
  cables_.add({});
}

std::vector<int32_t> Faults::links_of(const Part& part) const {
  const auto num_links = static_cast<int32_t>(links_.size()), num_classes = static_cast<int32_t>(num_switches_.size());
  const auto check = [](bool exists, const char* kind, int32_t id, int32_t count) {
    if (!exists) ROSTAM_THROW(ConfigError, "a controller names " << kind << " " << id << "; there are " << count);
  };
  if (part.kind == PartKind::kLink) {
    check(part.id >= 0 && part.id < num_links && !links_[part.id].is_removed, "link", part.id, num_links);
    return {part.id};
  }
  const bool is_switch = part.kind == PartKind::kSwitch;
  if (is_switch) {
    check(part.plane_class >= 0 && part.plane_class < num_classes, "plane class", part.plane_class, num_classes);
    const int32_t count = num_switches_[part.plane_class];
    check(part.id >= 0 && part.id < count, "switch", part.id, count);
  } else {
    check(part.id >= 0 && part.id < num_accelerators_, "accelerator", part.id, num_accelerators_);
  }
  const int32_t vertex = is_switch ? num_accelerators_ + part.id : part.id;
  std::vector<int32_t> links;
  for (int32_t l = 0; l < num_links; ++l) {
    const Link& link = links_[l];
    if (link.is_removed || (is_switch && link.plane_class != part.plane_class)) continue;
    if (link.src == vertex || link.dst == vertex) links.push_back(l);
  }
  return links;
}

std::vector<int32_t> Faults::fail(const Part& part) {
  std::vector<int32_t> links = links_of(part);
  failed_[key_of(part)].push_back(num_failures_++);
  for (const int32_t link : links) ++links_[link].num_failures;
  return links;
}

std::pair<std::vector<int32_t>, int32_t> Faults::repair(const Part& part) {
  std::vector<int32_t> links = links_of(part);
  const auto found = failed_.find(key_of(part));
  if (found == failed_.end()) {
    static const char* const kNames[] = {"accelerator", "link", "switch"};
    ROSTAM_THROW(ConfigError,
                 kNames[static_cast<int>(part.kind)] << " " << part.id << " is repaired, but it has not failed");
  }
  const int32_t number = found->second.front();
  found->second.erase(found->second.begin());
  if (found->second.empty()) failed_.erase(found);
  for (const int32_t link : links) --links_[link].num_failures;
  return {std::move(links), number};
}

fabric::Failures Faults::failures_of(int32_t plane_class) const {
  fabric::Failures found;
  for (const auto& [key, numbers] : failed_) {
    const auto& [kind, id, of_class] = key;
    if (kind == PartKind::kAccelerator) found.accelerators.push_back(id);
    if (kind == PartKind::kSwitch && of_class == plane_class) found.switches.push_back(id);
    if (kind != PartKind::kLink || links_[id].plane_class != plane_class) continue;
    const routing::IdSpan cables = cables_[static_cast<size_t>(id)];
    found.cables.insert(found.cables.end(), cables.begin(), cables.end());
  }
  return found;
}

int32_t Faults::first_failure_of(int32_t link) const {
  const Link& one = links_[link];
  int32_t first = -1;
  const auto look = [this, &first](const Key& key) {
    const auto found = failed_.find(key);
    if (found != failed_.end() && (first < 0 || found->second.front() < first)) first = found->second.front();
  };
  look({PartKind::kLink, link, 0});
  for (const int32_t end : {one.src, one.dst}) {
    const bool is_switch = end >= num_accelerators_;
    if (is_switch) {
      look({PartKind::kSwitch, end - num_accelerators_, one.plane_class});
    } else {
      look({PartKind::kAccelerator, end, 0});
    }
  }
  return first;
}

int32_t Faults::first_failure() const {
  int32_t first = -1;
  for (const auto& [key, numbers] : failed_) {
    if (first < 0 || numbers.front() < first) first = numbers.front();
  }
  return first;
}

bool Faults::has_dark_links() const {
  for (size_t l = 0; l < links_.size(); ++l) {
    if (!links_[l].is_removed && capacity(static_cast<int32_t>(l)) <= 0) return true;
  }
  return false;
}

// The last of the first failures of its links in a direction; -1 where one of these works, or there are none.
int32_t Faults::failure_of_all(int32_t accelerator, bool outgoing) const {
  int32_t last = -1;
  for (size_t l = 0; l < links_.size(); ++l) {
    const Link& link = links_[l];
    if (link.is_removed || (outgoing ? link.src : link.dst) != accelerator) continue;
    if (link.num_failures == 0) return -1;
    last = std::max(last, first_failure_of(static_cast<int32_t>(l)));
  }
  return last;
}

bool Faults::is_failed(int32_t accelerator) const {
  return is_lost_[accelerator] || (!failed_.empty() && failure_of(accelerator) >= 0);
}

int32_t Faults::failure_of(int32_t accelerator) const {
  const auto own = failed_.find({PartKind::kAccelerator, accelerator, 0});
  int32_t first = own != failed_.end() ? own->second.front() : -1;
  for (const bool outgoing : {true, false}) {
    const int32_t one = failure_of_all(accelerator, outgoing);
    if (one >= 0 && (first < 0 || one < first)) first = one;
  }
  return first;
}

}  // namespace rostam::runtime
