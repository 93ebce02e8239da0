#include "circuits/light_paths.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "circuits/wavelength_table.h"
#include "sim/errors.h"

namespace rostam::circuits {

namespace {

void check_part(const OpticalPart& part, OpticalKind kind, const char* name, int64_t count) {
  if (part.kind != kind || (part.id >= 0 && part.id < count)) return;
  ROSTAM_THROW(ConfigError, name << " " << part.id << " fails; there are " << count << ", counted from 0");
}

class OcsPaths : public LightPaths {
 public:
  OcsPaths(int32_t num_accelerators, int32_t num_ocs) : n_(num_accelerators), q_(num_ocs) {}

  int32_t num_channels() const override { return q_; }
  int32_t num_places() const override { return 2 * n_ * q_; }

  void find_places(int32_t src, int32_t dst, int32_t channel, std::vector<int32_t>& places) const override {
    places = {out(src, channel), out(dst, channel) + 1};
  }

  using LightPaths::places_of;
  std::vector<int32_t> places_of(const OpticalPart& part) const override {
    check_part(part, OpticalKind::kPort, "port", int64_t{n_} * q_);
    check_part(part, OpticalKind::kSwitch, "optical switch", q_);
    if (part.kind == OpticalKind::kPort) return {2 * part.id, 2 * part.id + 1};
    if (part.kind != OpticalKind::kSwitch) ROSTAM_THROW(ConfigError, "optical switches have no fibres round a ring");
    std::vector<int32_t> places;
    for (int32_t a = 0; a < n_; ++a) {
      places.push_back(out(a, part.id));
      places.push_back(out(a, part.id) + 1);
    }
    return places;
  }

 private:
  int32_t out(int32_t accelerator, int32_t ocs) const { return 2 * (accelerator * q_ + ocs); }

  int32_t n_, q_;
};

// Places: wavelengths of segments (by cable), of drivers, of receivers.
class RingLightPaths : public LightPaths {
 public:
  explicit RingLightPaths(Ring ring)
      : ring_(std::move(ring)), n_(ring_.num_accelerators), w_(ring_.num_wavelengths), is_cut_(2 * n_, 0) {
    for (const int32_t cable : ring_.cut_segments) is_cut_[cable] = 1;
  }

  int32_t num_channels() const override { return kNumFibres * w_; }
  int32_t num_places() const override { return 4 * n_ * w_; }

  void find_places(int32_t src, int32_t dst, int32_t channel, std::vector<int32_t>& places) const override {
    places.clear();
    const int32_t fibre = channel / w_, wavelength = channel % w_;
    const int32_t hops = ((fibre == 0 ? dst - src : src - dst) + n_) % n_;
    if (hops > ring_.reach) return;
    for (int32_t hop = 0; hop < hops; ++hop) {
      const int32_t cable = fibre == 0 ? ahead_of(src + hop) : behind(src - hop);
      if (is_cut_[cable]) return places.clear();
      places.push_back(cable * w_ + wavelength);
    }
    places.push_back((2 * n_ + src) * w_ + wavelength);
    places.push_back((3 * n_ + dst) * w_ + wavelength);
  }

  // While nothing is lost, by rows of bits. Cost: O(circuits + pairs x hops x W / 64).
  Setting undisturbed(const PairList& pairs, const Setting& setting, const Setting& held,
                      const std::vector<uint8_t>& is_lost) const override {
    if (!is_lost.empty()) return LightPaths::undisturbed(pairs, setting, held, is_lost);
    const size_t num_words = num_wavelength_words(w_);
    std::vector<WavelengthWord> used(4 * static_cast<size_t>(n_) * num_words, 0), own(kNumFibres * num_words),
        kept(own);
    const auto of_pair_on = [&](size_t pair, int32_t fibre) {
      const int32_t start = place_of(pairs.src[pair], fibre, n_), stop = place_of(pairs.dst[pair], fibre, n_);
      return WavelengthRows({fibre, start, stop > start ? stop : stop + n_}, pairs.src[pair], pairs.dst[pair],
                            static_cast<size_t>(n_));
    };
    for (size_t next = 0; next < setting.size();) {
      const auto pair = static_cast<size_t>(setting[next].pair);
      next = read_pair(setting, next, own);
      for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
        const WavelengthWord* const words = &own[static_cast<size_t>(fibre) * num_words];
        if (std::all_of(words, words + num_words, [](WavelengthWord word) { return word == 0; })) continue;
        of_pair_on(pair, fibre).visit([&](size_t row) {
          for (size_t word = 0; word < num_words; ++word) used[row * num_words + word] |= words[word];
        });
      }
    }
    Setting idle;
    for (size_t next = 0, at = 0; next < held.size();) {
      const size_t pair = static_cast<size_t>(held[next].pair);
      next = read_pair(held, next, own);
      while (at < setting.size() && setting[at].pair < held[next - 1].pair) ++at;
      std::fill(kept.begin(), kept.end(), WavelengthWord{0});
      if (at < setting.size() && setting[at].pair == held[next - 1].pair) at = read_pair(setting, at, kept);
      for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
        WavelengthWord* const words = &own[static_cast<size_t>(fibre) * num_words];
        WavelengthWord left = 0;
        for (size_t word = 0; word < num_words; ++word)
          left |= words[word] &= ~kept[static_cast<size_t>(fibre) * num_words + word];
        if (left == 0) continue;
        of_pair_on(pair, fibre).visit([&](size_t row) {
          for (size_t word = 0; word < num_words; ++word) words[word] &= ~used[row * num_words + word];
        });
        visit_wavelengths(words, num_words, [&](int32_t wavelength) {
          idle.push_back({static_cast<int32_t>(pair), fibre * w_ + wavelength});
        });
      }
    }
    return idle;
  }

  using LightPaths::places_of;
  std::vector<int32_t> places_of(const OpticalPart& part) const override {
    check_part(part, OpticalKind::kSegment, "fibre segment", 2 * int64_t{n_});
    check_part(part, OpticalKind::kWavelength, "wavelength", 2 * int64_t{w_});
    check_part(part, OpticalKind::kMicroRing, "micro-ring", 2 * int64_t{n_} * w_);
    std::vector<int32_t> places;
    if (part.kind == OpticalKind::kSegment) {
      for (int32_t wavelength = 0; wavelength < w_; ++wavelength) places.push_back(part.id * w_ + wavelength);
    } else if (part.kind == OpticalKind::kWavelength) {
      for (int32_t s = 0; s < n_; ++s) places.push_back((2 * s + part.id / w_) * w_ + part.id % w_);
    } else if (part.kind == OpticalKind::kMicroRing) {
      // What begins, ends or passes there takes one of the two segments at it.
      const int32_t accelerator = part.id / w_ / kNumFibres, fibre = part.id / w_ % kNumFibres;
      for (const int32_t s : {accelerator, (accelerator + n_ - 1) % n_}) {
        places.push_back((2 * s + fibre) * w_ + part.id % w_);
      }
    } else {
      ROSTAM_THROW(ConfigError, "a ring has no optical switches");
    }
    return places;
  }

 private:
  // Writes the wavelengths of the pair at `next`, words of fibre 0 and then of fibre 1; returns where the next one is.
  size_t read_pair(const Setting& setting, size_t next, std::vector<WavelengthWord>& words) const {
    const size_t num_words = words.size() / kNumFibres;
    std::fill(words.begin(), words.end(), WavelengthWord{0});
    const int32_t pair = setting[next].pair;
    for (; next < setting.size() && setting[next].pair == pair; ++next) {
      const bool is_second = setting[next].channel >= w_;
      const auto wavelength = static_cast<size_t>(is_second ? setting[next].channel - w_ : setting[next].channel);
      words[(is_second ? num_words : 0) + wavelength / kWavelengthsPerWord] |= WavelengthWord{1}
                                                                               << (wavelength % kWavelengthsPerWord);
    }
    return next;
  }

  // Cables of the segments that light takes next, clockwise from an accelerator and counter-clockwise.
  int32_t ahead_of(int32_t accelerator) const { return 2 * (accelerator % n_); }
  int32_t behind(int32_t accelerator) const { return 2 * ((accelerator - 1 + 2 * n_) % n_) + 1; }

  Ring ring_;
  int32_t n_, w_;
  std::vector<uint8_t> is_cut_;
};

}  // namespace

Setting LightPaths::undisturbed(const PairList& pairs, const Setting& setting, const Setting& held,
                                const std::vector<uint8_t>& is_lost) const {
  Setting idle;
  std::set_difference(held.begin(), held.end(), setting.begin(), setting.end(), std::back_inserter(idle));
  if (idle.empty()) return idle;
  std::vector<uint8_t> is_taken = is_lost;
  is_taken.resize(static_cast<size_t>(num_places()), 0);
  std::vector<int32_t> places;
  for (const Circuit& one : setting) {
    find_places(pairs.src[one.pair], pairs.dst[one.pair], one.channel, places);
    for (const int32_t place : places) is_taken[place] = 1;
  }
  const auto is_needed = [&](const Circuit& one) {
    find_places(pairs.src[one.pair], pairs.dst[one.pair], one.channel, places);
    return std::any_of(places.begin(), places.end(), [&](int32_t place) { return is_taken[place] != 0; });
  };
  idle.erase(std::remove_if(idle.begin(), idle.end(), is_needed), idle.end());
  return idle;
}

std::unique_ptr<LightPaths> make_ocs_paths(int32_t num_accelerators, int32_t num_ocs) {
  return std::make_unique<OcsPaths>(num_accelerators, num_ocs);
}

std::unique_ptr<LightPaths> make_ring_paths(const Ring& ring) { return std::make_unique<RingLightPaths>(ring); }

}  // namespace rostam::circuits
