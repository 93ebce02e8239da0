#include "routing/disjoint_paths.h"

#include <algorithm>
#include <utility>

#include "sim/interrupt.h"

namespace rostam::routing {

namespace {

using Cables = std::vector<int64_t>;  // of a path, ascending: each by its two switches, the lower one first

Cables cables_of(const Layers& layers, int32_t layer, int32_t from, int32_t to) {
  Cables cables;
  for (int32_t at = from; at != to;) {
    const int32_t next = layers.next(layer, at, to);
    const auto [low, high] = std::minmax(at, next);
    cables.push_back(static_cast<int64_t>(low) * layers.num_switches() + high);
    at = next;
  }
  std::sort(cables.begin(), cables.end());
  return cables;
}

bool share_a_cable(const Cables& a, const Cables& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j]) return true;
    ++(a[i] < b[j] ? i : j);
  }
  return false;
}

// Whether `more` of the paths from the k-th on share no cable with one another or with those taken.
bool has_more(const std::vector<Cables>& paths, size_t k, int32_t more, std::vector<size_t>& taken) {
  if (more == 0) return true;
  for (; k < paths.size(); ++k) {
    const bool is_apart =
        std::none_of(taken.begin(), taken.end(), [&](size_t other) { return share_a_cable(paths[other], paths[k]); });
    if (!is_apart) continue;
    taken.push_back(k);
    const bool is_found = has_more(paths, k + 1, more - 1, taken);
    taken.pop_back();
    if (is_found) return true;
  }
  return false;
}

}  // namespace

std::vector<int64_t> count_disjoint(const Layers& layers, int32_t most) {
  std::vector<int64_t> pairs(static_cast<size_t>(most) + 1, 0);
  for (int32_t from = 0; from < layers.num_switches(); ++from) {
    for (int32_t to = 0; to < layers.num_switches(); ++to) {
      if (from == to || layers.hops(from, to) < 0) continue;
      poll_interrupt();
      std::vector<Cables> paths;
      for (int32_t layer = 0; layer < layers.num_layers(); ++layer) paths.push_back(cables_of(layers, layer, from, to));
      std::sort(paths.begin(), paths.end());
      paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
      int32_t found = 1;
      std::vector<size_t> taken;
      while (found < most && has_more(paths, 0, found + 1, taken)) ++found;
      ++pairs[static_cast<size_t>(found)];
    }
  }
  return pairs;
}

}  // namespace rostam::routing
