#include "packet/path_pool.h"

#include <algorithm>
#include <unordered_set>

#include "sim/random.h"

namespace rostam::packet {

namespace {

uint64_t hash_of(const PathHop* first, const PathHop* last) {
  uint64_t hash = 0;
  for (const PathHop* hop = first; hop != last; ++hop) {
    hash = mix(hash ^ (static_cast<uint64_t>(hop->channel) << 32 | hop->next));
  }
  return hash;
}

}  // namespace

void PathPool::add(const routing::Steps& steps, int32_t src, int32_t dst, Links& links, std::vector<uint32_t>& roots) {
  const size_t count = steps.nodes.size();
  ids_.assign(count, kEnd);
  is_entered_.assign(count, 0);
  for (size_t n = count; n-- > 0;) {  // hops lead to later nodes
    const routing::Steps::Node& node = steps.nodes[n];
    if (node.first_hop == node.end_hop) {
      ROSTAM_CHECK(node.vertex == dst, "steps to vertex " << dst << " end at vertex " << node.vertex);
      continue;
    }
    found_.clear();
    for (uint32_t h = node.first_hop; h < node.end_hop; ++h) {
      const routing::Steps::Hop& hop = steps.hops[h];
      const auto link = static_cast<uint32_t>(hop.link);
      ROSTAM_CHECK(
          hop.node > n && links[link].src == node.vertex && links[link].dst == steps.nodes[hop.node].vertex,
          "steps take link " << link << " from vertex " << node.vertex << " to " << steps.nodes[hop.node].vertex);
      is_entered_[hop.node] = 1;
      const uint32_t next = ids_[hop.node], output = next == kEnd ? kNone : hops_[nodes_[next].first_hop].link;
      found_.push_back({link, links.channel_of(link, hop.channel, dst, output), next});
    }
    ids_[n] = intern(links, node.num_optional);
  }
  for (size_t n = 0; n < count; ++n) {
    if (is_entered_[n] != 0 || ids_[n] == kEnd) continue;
    ROSTAM_CHECK(steps.nodes[n].vertex == src, "steps from vertex " << src << " begin at " << steps.nodes[n].vertex);
    roots.push_back(ids_[n]);
  }
}

bool PathPool::is_same(uint32_t id, uint32_t num_optional) const {
  const PathNode& node = nodes_[id];
  if (node.num_hops != found_.size() || node.num_optional != num_optional) return false;
  for (uint32_t h = 0; h < node.num_hops; ++h) {
    const PathHop& known = hops_[node.first_hop + h];
    if (known.channel != found_[h].channel || known.next != found_[h].next) return false;
  }
  return true;
}

void PathPool::grow() {
  std::vector<uint32_t> larger(std::max<size_t>(1024, 2 * table_.size()), kEnd);
  for (const uint32_t id : table_) {
    if (id == kEnd) continue;
    const PathHop* first = hops_.data() + nodes_[id].first_hop;
    size_t place = hash_of(first, first + nodes_[id].num_hops) & (larger.size() - 1);
    while (larger[place] != kEnd) place = (place + 1) & (larger.size() - 1);
    larger[place] = id;
  }
  table_.swap(larger);
}

// The node with the hops that were found.
uint32_t PathPool::intern(const Links& links, uint32_t num_optional) {
  if (2 * nodes_.size() >= table_.size()) grow();
  size_t place = hash_of(found_.data(), found_.data() + found_.size()) & (table_.size() - 1);
  for (; table_[place] != kEnd; place = (place + 1) & (table_.size() - 1)) {
    if (is_same(table_[place], num_optional)) return table_[place];
  }
  const auto id = static_cast<uint32_t>(nodes_.size());
  PathNode node;
  node.first_hop = static_cast<uint32_t>(hops_.size());
  node.num_hops = static_cast<uint32_t>(found_.size());
  node.num_optional = num_optional;
  node.turn = static_cast<uint32_t>(mix(id));
  for (const PathHop& hop : found_) {
    const Link& link = links[hop.link];
    const PathNode& next = nodes_[hop.next];
    node.num_links = std::max(node.num_links, next.num_links + (link.is_exit ? 0 : 1));
    const int64_t onwards = hop.next == kEnd ? 0 : link.own_forward_ps + next.latency_ps;
    node.latency_ps = std::max(node.latency_ps, link.latency_ps + onwards);
  }
  hops_.insert(hops_.end(), found_.begin(), found_.end());
  nodes_.push_back(node);
  table_[place] = id;
  return id;
}

std::vector<int32_t> PathPool::links_from(const std::vector<uint32_t>& roots) const {
  std::vector<int32_t> links;
  std::unordered_set<int32_t> known;
  std::unordered_set<uint32_t> seen(roots.begin(), roots.end());
  std::vector<uint32_t> line = roots;
  for (size_t k = 0; k < line.size(); ++k) {
    const PathNode node = nodes_[line[k]];
    for (uint32_t h = node.first_hop; h < node.first_hop + node.num_hops; ++h) {
      const auto link = static_cast<int32_t>(hops_[h].link);
      if (known.insert(link).second) links.push_back(link);
      if (seen.insert(hops_[h].next).second) line.push_back(hops_[h].next);
    }
  }
  return links;
}

}  // namespace rostam::packet
