#include "circuits/ring_paths.h"

#include <algorithm>

#include "sim/errors.h"

namespace rostam::circuits {

namespace {

class PathChooser {
 public:
  PathChooser(const Demand& demand, const Ring& ring) : demand_(demand), ring_(ring), n_(ring.num_accelerators) {
    for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
      is_cut_[fibre].assign(static_cast<size_t>(n_), 0);
      load_[fibre].assign(static_cast<size_t>(n_), 0.0);
    }
    for (const int32_t cable : ring.cut_segments) {
      const int32_t fibre = cable % kNumFibres;
      const int32_t tail = fibre == 0 ? cable / 2 : (cable / 2 + 1) % n_;
      is_cut_[fibre][static_cast<size_t>(place_of(tail, fibre, n_))] = 1;
    }
  }

  std::vector<std::vector<RingPath>> open(bool may_be_none) const {
    std::vector<std::vector<RingPath>> ways(demand_.src.size());
    for (size_t i = 0; i < ways.size(); ++i) {
      for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
        const RingPath one = path(i, fibre);
        if (is_open(one)) ways[i].push_back(one);
      }
      if (ways[i].empty() && !may_be_none) refuse(i, std::min(path(i, 0).num_hops(), path(i, 1).num_hops()));
    }
    return ways;
  }

  std::vector<RingPath> run() {
    std::vector<RingPath> paths(demand_.src.size());
    std::vector<size_t> tied;
    for (size_t i = 0; i < paths.size(); ++i) {
      const RingPath forth = path(i, 0);
      const RingPath back = path(i, 1);
      const bool can[] = {is_open(forth), is_open(back)};
      if (!can[0] && !can[1]) refuse(i, std::min(forth.num_hops(), back.num_hops()));
      if (can[0] && can[1] && forth.num_hops() == back.num_hops()) {
        tied.push_back(i);
        continue;
      }
      paths[i] = !can[1] || (can[0] && forth.num_hops() < back.num_hops()) ? forth : back;
      add_load(paths[i], demand_.num_bytes[i]);
    }
    for (const size_t i : tied) {
      const RingPath forth = path(i, 0);
      const RingPath back = path(i, 1);
      paths[i] = most_loaded(forth) <= most_loaded(back) ? forth : back;
      add_load(paths[i], demand_.num_bytes[i]);
    }
    return paths;
  }

 private:
  RingPath path(size_t pair, int32_t fibre) const {
    const int32_t start = place_of(demand_.src[pair], fibre, n_);
    const int32_t stop = place_of(demand_.dst[pair], fibre, n_);
    return {fibre, start, stop > start ? stop : stop + n_};
  }

  bool is_open(const RingPath& path) const {
    if (path.num_hops() > ring_.reach) return false;
    for (int32_t p = path.start; p < path.end; ++p) {
      if (is_cut_[path.fibre][static_cast<size_t>(p % n_)]) return false;
    }
    return true;
  }

  void add_load(const RingPath& path, double num_bytes) {
    for (int32_t p = path.start; p < path.end; ++p) load_[path.fibre][static_cast<size_t>(p % n_)] += num_bytes;
  }

  double most_loaded(const RingPath& path) const {
    double most = 0;
    for (int32_t p = path.start; p < path.end; ++p) {
      most = std::max(most, load_[path.fibre][static_cast<size_t>(p % n_)]);
    }
    return most;
  }

  [[noreturn]] void refuse(size_t pair, int32_t num_hops) const {
    if (num_hops > ring_.reach) {
      ROSTAM_THROW(ConfigError, "accelerators " << demand_.src[pair] << " and " << demand_.dst[pair] << " are "
                                                << num_hops << " hops apart on the ring, fabric.reach is "
                                                << ring_.reach << "; place what communicates closer together");
    }
    ROSTAM_THROW(ConfigError, "fibre cuts leave no way of at most "
                                  << ring_.reach << " hops (fabric.reach) from accelerator " << demand_.src[pair]
                                  << " to accelerator " << demand_.dst[pair]);
  }

  const Demand& demand_;
  const Ring& ring_;
  int32_t n_;
  std::vector<uint8_t> is_cut_[kNumFibres];  // by place
  std::vector<double> load_[kNumFibres];     // [bytes], by place
};

}  // namespace

std::vector<std::vector<RingPath>> open_ways(const Demand& demand, const Ring& ring, bool may_be_none) {
  return PathChooser(demand, ring).open(may_be_none);
}

std::vector<RingPath> choose_paths(const Demand& demand, const Ring& ring) { return PathChooser(demand, ring).run(); }

}  // namespace rostam::circuits
