#include "circuits/ring_flow.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "sim/errors.h"

namespace rostam::circuits {

namespace {

constexpr int32_t kDummy = -1;
constexpr double kNoWay = -std::numeric_limits<double>::infinity();

}  // namespace

RingFlow::RingFlow(const Ring& ring, int32_t fibre, const std::vector<int32_t>& src, const std::vector<int32_t>& dst,
                   const std::vector<RingPath>& paths, const std::vector<int32_t>& counts, int32_t cut_rank)
    : n_(ring.num_accelerators), fibre_(fibre), src_(src), dst_(dst) {
  const size_t n = static_cast<size_t>(n_);
  cut(paths, counts, cut_rank);
  accelerator_.resize(n + 1);
  for (int32_t p = 0; p <= n_; ++p) accelerator_[static_cast<size_t>(p)] = accelerator_at(origin_ + p, fibre, n_);
  begin_.assign(n + 1, 0);
  load_.assign(n + 1, 0);
  const auto place = [&](const RingPath& path) { return (path.start - origin_ + n_) % n_; };
  for (size_t i = 0; i < paths.size(); ++i) {
    if (paths[i].fibre != fibre) continue;
    const int32_t start = place(paths[i]);
    const int32_t end = start + paths[i].num_hops();
    load_[static_cast<size_t>(start)] += counts[i];
    load_[static_cast<size_t>(end > n_ ? end - n_ : end)] -= counts[i];
    if (end > n_) {
      load_[0] += counts[i];
      severed_.push_back({start, end, static_cast<int32_t>(i), counts[i]});
    } else {
      ++begin_[static_cast<size_t>(start) + 1];
    }
  }
  for (size_t p = 0; p < n; ++p) {
    begin_[p + 1] += begin_[p];
    if (p > 0) load_[p] += load_[p - 1];
  }
  edges_.resize(static_cast<size_t>(begin_[n]));
  end_.resize(edges_.size());
  num_open_.assign(n, 0);
  for (size_t i = 0; i < paths.size(); ++i) {
    if (paths[i].fibre != fibre) continue;
    const int32_t start = place(paths[i]);
    const int32_t end = start + paths[i].num_hops();
    if (end > n_) continue;
    const int32_t at = begin_[static_cast<size_t>(start)] + num_open_[static_cast<size_t>(start)]++;
    edges_[static_cast<size_t>(at)] = {static_cast<int32_t>(i), counts[i]};
    end_[static_cast<size_t>(at)] = end;
  }
  by_edge_.resize(n + 1);
  via_.resize(n + 1);
}

// After it `origin_` is a place that few wavelengths pass without ending or beginning there; rank 0: the fewest.
void RingFlow::cut(const std::vector<RingPath>& paths, const std::vector<int32_t>& counts, int32_t cut_rank) {
  std::vector<int64_t> passing(static_cast<size_t>(n_) + 1, 0);
  for (size_t i = 0; i < paths.size(); ++i) {
    if (paths[i].fibre != fibre_) continue;
    const int32_t first = paths[i].start + 1;
    const int32_t last = paths[i].end;  // places first..last-1 are passed
    if (first >= n_) {
      passing[0] += counts[i];
      passing[static_cast<size_t>(last - n_)] -= counts[i];
      continue;
    }
    passing[static_cast<size_t>(first)] += counts[i];
    passing[static_cast<size_t>(std::min(last, n_))] -= counts[i];
    if (last > n_) {
      passing[0] += counts[i];
      passing[static_cast<size_t>(last - n_)] -= counts[i];
    }
  }
  for (size_t p = 1; p < passing.size(); ++p) passing[p] += passing[p - 1];
  std::vector<int32_t> places(static_cast<size_t>(n_));
  std::iota(places.begin(), places.end(), 0);
  const auto is_passed_less = [&](int32_t a, int32_t b) {
    return std::make_pair(passing[static_cast<size_t>(a)], a) < std::make_pair(passing[static_cast<size_t>(b)], b);
  };
  const auto chosen = places.begin() + cut_rank % n_;
  std::nth_element(places.begin(), chosen, places.end(), is_passed_less);
  origin_ = *chosen;
}

// The severed pair with most to get whose ends the other fibre leaves free, or null.
RingFlow::Severed* RingFlow::choose_severed(const Taken& taken) {
  Severed* best = nullptr;
  for (Severed& edge : severed_) {
    const size_t pair = static_cast<size_t>(edge.pair);
    if (edge.left == 0 || taken.drives[static_cast<size_t>(src_[pair])]) continue;
    if (taken.receives[static_cast<size_t>(dst_[pair])]) continue;
    if (best == nullptr || edge.left > best->left) best = &edge;
  }
  return best;
}

void RingFlow::take(int32_t start, int32_t end, int32_t pair, std::vector<int32_t>& sends,
                    std::vector<int32_t>& receives, std::vector<int32_t>& served) {
  for (int32_t p = start; p < end; ++p) --load_[static_cast<size_t>(p < n_ ? p : p - n_)];
  --sends[static_cast<size_t>(src_[static_cast<size_t>(pair)])];
  --receives[static_cast<size_t>(dst_[static_cast<size_t>(pair)])];
  served.push_back(pair);
}

void RingFlow::serve(int32_t num_left, const std::vector<double>& price, const Taken& taken,
                     std::vector<int32_t>& sends, std::vector<int32_t>& receives, std::vector<int32_t>& served) {
  Severed* const severed = choose_severed(taken);
  const size_t first = static_cast<size_t>(severed == nullptr ? 0 : severed->end - n_);
  const size_t last = static_cast<size_t>(severed == nullptr ? n_ : severed->start);
  std::fill(by_edge_.begin() + static_cast<std::ptrdiff_t>(first), by_edge_.end(), kNoWay);
  const double* const price_of = price.data();
  const auto price_at = [price_of, num_left](int32_t still) { return price_of[std::max(num_left - still, 0)]; };
  double* const by_edge = by_edge_.data();
  int32_t* const via = via_.data();
  const int32_t* const end_of = end_.data();
  // Comparisons of worth go either way: they are sums and masks, not branches.
  const auto mask = [](bool is_set) { return -static_cast<int32_t>(is_set); };
  double by_dummy = 0;  // worth of the best flow that reaches this place over a dummy edge
  for (size_t p = first;; ++p) {
    const auto here = static_cast<size_t>(accelerator_[p]);
    const double arrived = taken.receives[here] ? kNoWay : by_edge[p] + price_at(receives[here]);
    static_assert(kDummy == ~0);
    via[p] |= mask(arrived <= by_dummy);
    const double worth = std::max(arrived, by_dummy);
    if (p == last) break;
    by_dummy = worth - price_at(load_[p]);
    if (taken.drives[here]) continue;
    const double driven = worth + price_at(sends[here]);
    const int32_t stop = begin_[p] + num_open_[p];
    for (int32_t e = begin_[p]; e < stop; ++e) {
      const int32_t end = end_of[e];
      const int32_t is_better = mask(driven > by_edge[end]);
      via[end] ^= (via[end] ^ e) & is_better;
      by_edge[end] = std::max(by_edge[end], driven);
    }
  }
  if (severed != nullptr) {
    --severed->left;
    take(severed->start, severed->end, severed->pair, sends, receives, served);
  }
  for (size_t p = last; p > first;) {
    const int32_t e = via_[p];
    if (e == kDummy) {
      --p;
      continue;
    }
    Edge& edge = edges_[static_cast<size_t>(e)];
    const int32_t pair = edge.pair;
    const size_t start =
        static_cast<size_t>((place_of(src_[static_cast<size_t>(pair)], fibre_, n_) - origin_ + n_) % n_);
    take(static_cast<int32_t>(start), end_[static_cast<size_t>(e)], pair, sends, receives, served);
    p = start;
    if (--edge.left > 0) continue;
    const auto last_open = static_cast<size_t>(begin_[start] + --num_open_[start]);
    std::swap(edge, edges_[last_open]);
    std::swap(end_[static_cast<size_t>(e)], end_[last_open]);
  }
}

}  // namespace rostam::circuits
