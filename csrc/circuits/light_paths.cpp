#include "circuits/light_paths.h"

#include <algorithm>
#include <utility>

#include "circuits/wavelength_table.h"
#include "sim/errors.h"
#include "sim/interrupt.h"

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

// Wavelengths in use on every row of a ring, asked for by blocks of channels, of which those of fibre 1 need not begin
// at the beginning of a word.
class Used {
 public:
  Used(int32_t n, int32_t w)
      : w_(w), num_rows_(4 * static_cast<size_t>(n)), num_words_(num_words_of(w)), words_(num_rows_ * num_words_, 0) {}

  // The channels of a block that are of a fibre.
  Word on_fibre(int32_t fibre, int32_t block) const {
    const int32_t first = fibre * w_ - block * kWordBits, end = first + w_;  // within the block
    return up_to(end) & ~up_to(first);
  }
  void set(int32_t fibre, int32_t block, const WavelengthRows& rows, Word channels) {
    visit(fibre, block, [&](size_t word, int32_t shift) {
      const Word some = shift >= 0 ? channels << shift : channels >> -shift;
      if (some != 0) rows.set(&words_[word * num_rows_], some);
    });
  }
  Word any_of(int32_t fibre, int32_t block, const WavelengthRows& rows) const {
    Word found = 0;
    visit(fibre, block, [&](size_t word, int32_t shift) {
      const Word some = rows.any_of(&words_[word * num_rows_]);
      found |= shift >= 0 ? some >> shift : some << -shift;
    });
    return found & on_fibre(fibre, block);
  }

 private:
  static Word up_to(int32_t channel) {
    if (channel <= 0) return 0;
    return channel >= kWordBits ? ~Word{0} : bit_of(channel) - 1;
  }
  // Calls visit(word, shift) for the one or two words of wavelengths that a block is in: its lowest channel is the
  // word's wavelength `shift`, which may be negative.
  template <typename Visit>
  void visit(int32_t fibre, int32_t block, Visit visit) const {
    const int32_t at = block * kWordBits - fibre * w_;
    const int32_t word = at >= 0 ? at / kWordBits : -1, shift = at - word * kWordBits;
    if (word >= 0) visit(static_cast<size_t>(word), shift);
    if (shift > 0 && word + 1 < static_cast<int32_t>(num_words_))
      visit(static_cast<size_t>(word + 1), shift - kWordBits);
  }

  int32_t w_;
  size_t num_rows_, num_words_;
  std::vector<Word> words_;
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

  // While nothing is lost, by words of bits. Cost: O(pairs x hops x W / 64).
  Setting undisturbed(const PairList& pairs, const Setting& added, const Setting& given_up,
                      const std::vector<uint8_t>& is_lost) const override {
    if (!is_lost.empty()) return LightPaths::undisturbed(pairs, added, given_up, is_lost);
    Used used(n_, w_);
    for (const ChannelBlock& block : added.blocks()) {
      for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
        if (const Word some = block.channels & used.on_fibre(fibre, block.number); some != 0)
          used.set(fibre, block.number, rows_of(pairs, block.pair, fibre), some);
      }
    }
    Setting idle;
    idle.reserve(given_up.blocks().size());
    for (const ChannelBlock& block : given_up.blocks()) {
      Word taken = 0;
      for (int32_t fibre = 0; fibre < kNumFibres; ++fibre) {
        if ((block.channels & used.on_fibre(fibre, block.number)) != 0)
          taken |= used.any_of(fibre, block.number, rows_of(pairs, block.pair, fibre));
      }
      idle.add({block.pair, block.number, block.channels & ~taken});
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
  WavelengthRows rows_of(const PairList& pairs, int32_t pair, int32_t fibre) const {
    const int32_t src = pairs.src[pair], dst = pairs.dst[pair];
    const int32_t start = place_of(src, fibre, n_), stop = place_of(dst, fibre, n_);
    return WavelengthRows({fibre, start, stop > start ? stop : stop + n_}, src, dst, n_);
  }

  // Cables of the segments that light takes next, clockwise from an accelerator and counter-clockwise.
  int32_t ahead_of(int32_t accelerator) const { return 2 * (accelerator % n_); }
  int32_t behind(int32_t accelerator) const { return 2 * ((accelerator - 1 + 2 * n_) % n_) + 1; }

  Ring ring_;
  int32_t n_, w_;
  std::vector<uint8_t> is_cut_;
};

}  // namespace

Setting LightPaths::undisturbed(const PairList& pairs, const Setting& added, const Setting& given_up,
                                const std::vector<uint8_t>& is_lost) const {
  if (given_up.empty()) return given_up;
  std::vector<uint8_t> is_taken = is_lost;
  is_taken.resize(static_cast<size_t>(num_places()), 0);
  std::vector<int32_t> places;
  InterruptPoll poll;
  for (const Circuit one : added) {
    poll();
    find_places(pairs.src[one.pair], pairs.dst[one.pair], one.channel, places);
    for (const int32_t place : places) is_taken[place] = 1;
  }
  const auto is_needed = [&](const Circuit& one) {
    poll();
    find_places(pairs.src[one.pair], pairs.dst[one.pair], one.channel, places);
    return std::any_of(places.begin(), places.end(), [&](int32_t place) { return is_taken[place] != 0; });
  };
  Setting idle;
  for (const Circuit one : given_up) {
    if (!is_needed(one)) idle.add(one);
  }
  return idle;
}

std::unique_ptr<LightPaths> make_ocs_paths(int32_t num_accelerators, int32_t num_ocs) {
  return std::make_unique<OcsPaths>(num_accelerators, num_ocs);
}

std::unique_ptr<LightPaths> make_ring_paths(const Ring& ring) { return std::make_unique<RingLightPaths>(ring); }

}  // namespace rostam::circuits
