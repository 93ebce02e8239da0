#include "circuits/ring_wavelengths.h"

#include <algorithm>
#include <utility>

#include "circuits/ring_assignment.h"
#include "circuits/ring_packing.h"
#include "sim/errors.h"

namespace rostam::circuits {

namespace {

// Choosing between both ways: of a setting before a run, and of one of many within it, where time goes into rounds over
// all wavelengths. Before a run, 358 random mixes of 1 to 4 shifts on 3 to 16 accelerators, 8 to 320 wavelengths: share
// of the covering program's bound 0.998 on average, 0.75 at worst, below 0.95 in four; 136 ms of CPU on average, 0.96 s
// at most. Within it, 18 random demands of 8 to 16 accelerators, 64 wavelengths, share of the integer optimum without
// continuity on average, worst and ms: 0.994, 0.955, 3.4, and 0.979, 0.914, 4.7 with the begins and turns of before.
constexpr PackingEffort kOnce = {10000000, {7, 6}, 2000, {3, 6}};
constexpr PackingEffort kAgain = {1000000, {1, 2}, 0, {}};

// No wavelength twice on a segment of a fibre; each driven, and received, on one fibre at most; reach kept; paths end
// where they should. Built anew from the result alone.
void check_ring(const Demand& demand, const Ring& ring, const RingWavelengths& found) {
  const size_t n = static_cast<size_t>(ring.num_accelerators);
  const size_t num_words = num_words_of(ring.num_wavelengths);
  std::vector<Word> used(4 * n * num_words, 0);  // rows: segments of both fibres, drivers, receivers
  std::vector<Word> own(num_words);              // of one pair on one fibre
  const auto use = [&](size_t row, size_t pair) {
    for (size_t word = 0; word < num_words; ++word) {
      ROSTAM_CHECK(!(used[row * num_words + word] & own[word]), "pair " << pair << " has a wavelength used already");
      used[row * num_words + word] |= own[word];
    }
  };
  size_t next = 0;
  for (size_t i = 0; i < found.count.size(); ++i) {
    const size_t first = next;
    while (next < found.circuit_pair.size() && found.circuit_pair[next] == static_cast<int32_t>(i)) ++next;
    for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
      std::fill(own.begin(), own.end(), Word{0});
      bool is_taken = false;
      for (size_t c = first; c < next; ++c) {
        if (found.circuit_fibre[c] != fibre) continue;
        const int32_t wavelength = found.circuit_wavelength[c];
        Word& word = own[static_cast<size_t>(wavelength / kWordBits)];
        const Word bit = bit_of(wavelength);
        ROSTAM_CHECK(!(word & bit), "pair " << i << " has wavelength " << wavelength << " twice");
        word |= bit;
        is_taken = true;
      }
      if (!is_taken) continue;
      use(2 * n + static_cast<size_t>(demand.src[i]), i);
      use(3 * n + static_cast<size_t>(demand.dst[i]), i);
      const int32_t step = fibre == 0 ? 1 : -1;
      int32_t here = demand.src[i], num_hops = 0;
      for (; here != demand.dst[i]; ++num_hops) {
        if (fibre == 1) here = (here + step + ring.num_accelerators) % ring.num_accelerators;
        use(static_cast<size_t>(fibre) * n + static_cast<size_t>(here), i);
        if (fibre == 0) here = (here + step) % ring.num_accelerators;
      }
      ROSTAM_CHECK(num_hops <= ring.reach && num_hops <= found.num_hops[i],
                   "pair " << i << " is " << num_hops << " hops long");
    }
  }
  ROSTAM_CHECK(next == found.circuit_pair.size(), "circuits are not in the order of their pairs");
}

// One way for each pair.
RingWavelengths one_way(const Demand& demand, const Ring& ring, const OneWayOptions& options,
                        const std::vector<RingCircuit>& held) {
  std::vector<RingPath> paths = choose_paths(demand, ring);
  const size_t num_words = num_words_of(ring.num_wavelengths);
  std::vector<Word> held_words(held.empty() ? 0 : paths.size() * num_words, 0);
  for (const RingCircuit& one : held) {
    const auto pair = static_cast<size_t>(one.pair);
    if (one.fibre != paths[pair].fibre) continue;
    held_words[pair * num_words + static_cast<size_t>(one.wavelength / kWordBits)] |= bit_of(one.wavelength);
  }
  const OneWay found = assign_one_way(demand, ring, std::move(paths), options, held_words);
  RingWavelengths result;
  result.count = found.count;
  result.target = found.target;
  result.keeps_names = found.keeps_names;
  for (size_t i = 0; i < found.paths.size(); ++i) {
    result.num_hops.push_back(found.paths[i].num_hops());
    visit_bits(&found.words[i * num_words], num_words, [&](int32_t wavelength) {
      result.circuit_pair.push_back(static_cast<int32_t>(i));
      result.circuit_fibre.push_back(found.paths[i].fibre);
      result.circuit_wavelength.push_back(wavelength);
    });
  }
  return result;
}

// Either way, or both at once.
RingWavelengths both_ways(const Demand& demand, const Ring& ring, uint64_t seed,
                          const std::vector<std::vector<RingPath>>& ways, RingWavelengths found,
                          const PackingEffort& effort) {
  std::vector<RingCircuit> circuits;
  for (size_t c = 0; c < found.circuit_pair.size(); ++c)
    circuits.push_back({found.circuit_pair[c], found.circuit_fibre[c], found.circuit_wavelength[c]});
  circuits = RingPacking(demand, ring, ways, seed).improve(circuits, effort);
  found.circuit_pair.clear();
  found.circuit_fibre.clear();
  found.circuit_wavelength.clear();
  std::fill(found.count.begin(), found.count.end(), 0);
  std::vector<int32_t> num_hops(found.count.size(), 0);
  for (const RingCircuit& one : circuits) {
    found.circuit_pair.push_back(one.pair);
    found.circuit_fibre.push_back(one.fibre);
    found.circuit_wavelength.push_back(one.wavelength);
    ++found.count[one.pair];
    for (const RingPath& way : ways[one.pair]) {
      if (way.fibre == one.fibre) num_hops[one.pair] = std::max(num_hops[one.pair], way.num_hops());
    }
  }
  for (size_t i = 0; i < num_hops.size(); ++i) {
    if (num_hops[i] > 0) found.num_hops[i] = num_hops[i];
  }
  return found;
}

}  // namespace

RingWavelengths set_ring_wavelengths(const Demand& demand, const Ring& ring, uint64_t seed, bool may_leave_out,
                                     const std::vector<RingCircuit>& held) {
  bool is_both_ways = false;
  std::vector<std::vector<RingPath>> ways;
  if (ring.num_accelerators <= kNumFibres * ring.reach && !demand.src.empty()) {
    ways = open_ways(demand, ring);
    is_both_ways = std::any_of(ways.begin(), ways.end(), [](const auto& all) { return all.size() > 1; });
  }
  RingWavelengths found =
      one_way(demand, ring, {seed, may_leave_out || is_both_ways, may_leave_out && !is_both_ways}, held);
  if (is_both_ways) {
    found.keeps_names = false;
    found = both_ways(demand, ring, seed, ways, std::move(found), may_leave_out ? kAgain : kOnce);
  }
  for (size_t i = 0; i < found.count.size() && !may_leave_out; ++i) {
    if (found.count[i] > 0) continue;
    ROSTAM_THROW(ConfigError, "no wavelength is free on all " << found.num_hops[i] << " segments from accelerator "
                                                              << demand.src[i] << " to accelerator " << demand.dst[i]
                                                              << " of the ring (" << ring.num_wavelengths
                                                              << " wavelengths a fibre); lower the plan's circuit "
                                                                 "degree or raise fabric.accelerator_bandwidth");
  }
  check_ring(demand, ring, found);
  return found;
}

}  // namespace rostam::circuits
