// Setting: the circuits that are set together, ascending, each once. Pairs have many channels each on a ring, so these
// are bits: a setting of 1,024 accelerators and 320 wavelengths is 250,000 circuits and 20,000 words.
// Example: Setting({{0, 3}, {2, 70}}) has blocks {0, 0, 1 << 3} and {2, 1, 1 << 6}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "circuits/bits.h"

namespace rostam::circuits {

// One circuit of a pair. channel: its switch; on a ring fibre x W + wavelength.
struct Circuit {
  int32_t pair = 0;
  int32_t channel = 0;
  bool operator==(const Circuit& other) const { return pair == other.pair && channel == other.channel; }
  bool operator<(const Circuit& other) const {
    return pair != other.pair ? pair < other.pair : channel < other.channel;
  }
};

// Some of a pair's channels: number x 64 + i for each bit i, of which one is set at least.
struct ChannelBlock {
  int32_t pair = 0;
  int32_t number = 0;
  Word channels = 0;
  bool operator==(const ChannelBlock& other) const {
    return pair == other.pair && number == other.number && channels == other.channels;
  }
  bool is_before(const ChannelBlock& other) const {
    return pair != other.pair ? pair < other.pair : number < other.number;
  }
};

class Setting {
 public:
  // Over circuits, ascending.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Circuit;
    using difference_type = std::ptrdiff_t;
    using pointer = const Circuit*;
    using reference = Circuit;

    explicit Iterator(const ChannelBlock* at, const ChannelBlock* end)
        : at_(at), end_(end), left_(at == end ? 0 : at->channels) {}
    Circuit operator*() const { return {at_->pair, at_->number * kWordBits + lowest_bit(left_)}; }
    Iterator& operator++() {
      left_ &= left_ - 1;
      if (left_ == 0 && ++at_ != end_) left_ = at_->channels;
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_ && left_ == other.left_; }
    bool operator!=(const Iterator& other) const { return !(*this == other); }

   private:
    const ChannelBlock* at_;
    const ChannelBlock* end_;
    Word left_;  // of the block, this circuit's and those behind it
  };

  Setting() = default;
  // In any order.
  explicit Setting(std::vector<Circuit> circuits);

  bool empty() const { return blocks_.empty(); }
  int64_t size() const { return size_; }  // circuits
  Iterator begin() const { return Iterator(blocks_.data(), blocks_.data() + blocks_.size()); }
  Iterator end() const { return Iterator(blocks_.data() + blocks_.size(), blocks_.data() + blocks_.size()); }
  bool has(const Circuit& one) const;
  bool operator==(const Setting& other) const { return blocks_ == other.blocks_; }

  // Ascending, each block once.
  const std::vector<ChannelBlock>& blocks() const { return blocks_; }
  void reserve(size_t num_blocks) { blocks_.reserve(num_blocks); }
  // REQUIRES, of these: circuits are new, in the last block or behind it.
  void add(const Circuit& one) { add({one.pair, one.channel / kWordBits, bit_of(one.channel)}); }
  void add(const ChannelBlock& some) {
    if (some.channels == 0) return;
    size_ += num_set(some.channels);
    if (!blocks_.empty() && blocks_.back().pair == some.pair && blocks_.back().number == some.number) {
      blocks_.back().channels |= some.channels;
    } else {
      blocks_.push_back(some);
    }
  }
  // Channels first + i of a pair for each bit i that is set.
  void add_row(int32_t pair, int32_t first, const Word* row, size_t num_words);

 private:
  std::vector<ChannelBlock> blocks_;
  int64_t size_ = 0;
};

// Circuits of `all` that `others` does not have, and circuits of either.
Setting without(const Setting& all, const Setting& others);
Setting together(const Setting& some, const Setting& others);

// How many each of `num_pairs` pairs has.
std::vector<int32_t> count_circuits(const Setting& setting, size_t num_pairs);

// A setting's blocks, a pair after another. Example: for (PairBlocks of(setting); of.next();) of.pair();
class PairBlocks {
 public:
  explicit PairBlocks(const Setting& setting)
      : begin_(setting.blocks().data()), end_(begin_), last_(begin_ + setting.blocks().size()) {}
  // Moves on to the next pair that has circuits. Returns whether there is one.
  bool next() {
    begin_ = end_;
    while (end_ != last_ && end_->pair == begin_->pair) ++end_;
    return begin_ != end_;
  }
  // Moves on to a pair. Returns whether it has circuits. REQUIRES: it is behind all pairs that were moved to.
  bool find(int32_t pair) {
    while (end_ != last_ && end_->pair < pair) ++end_;
    begin_ = end_;
    while (end_ != last_ && end_->pair == pair) ++end_;
    return begin_ != end_;
  }
  int32_t pair() const { return begin_->pair; }
  // Writes channels first, ..., first + count - 1 of the pair as a row of bits. Returns whether any is set.
  bool read_row(int32_t first, int32_t count, Word* row) const;
  int32_t num_circuits() const;

 private:
  const ChannelBlock *begin_, *end_;  // of the pair
  const ChannelBlock* last_;
};

}  // namespace rostam::circuits
