#include "circuits/setting.h"

#include <algorithm>

namespace rostam::circuits {

Setting::Setting(std::vector<Circuit> circuits) {
  std::sort(circuits.begin(), circuits.end());
  circuits.erase(std::unique(circuits.begin(), circuits.end()), circuits.end());
  for (const Circuit& one : circuits) add(one);
}

bool Setting::has(const Circuit& one) const {
  const ChannelBlock wanted = {one.pair, one.channel / kWordBits, bit_of(one.channel)};
  const auto found =
      std::lower_bound(blocks_.begin(), blocks_.end(), wanted,
                       [](const ChannelBlock& block, const ChannelBlock& other) { return block.is_before(other); });
  return found != blocks_.end() && !wanted.is_before(*found) && (found->channels & wanted.channels) != 0;
}

void Setting::add_row(int32_t pair, int32_t first, const Word* row, size_t num_words) {
  const int32_t shift = first % kWordBits;
  int32_t number = first / kWordBits;
  for (size_t word = 0; word < num_words; ++word, ++number) {
    add({pair, number, row[word] << shift});
    if (shift > 0) add({pair, number + 1, row[word] >> (kWordBits - shift)});
  }
}

Setting without(const Setting& all, const Setting& others) {
  Setting left;
  left.reserve(all.blocks().size());
  auto other = others.blocks().begin();
  for (const ChannelBlock& block : all.blocks()) {
    while (other != others.blocks().end() && other->is_before(block)) ++other;
    const bool is_same = other != others.blocks().end() && !block.is_before(*other);
    left.add({block.pair, block.number, is_same ? block.channels & ~other->channels : block.channels});
  }
  return left;
}

Setting together(const Setting& some, const Setting& others) {
  Setting all;
  all.reserve(some.blocks().size() + others.blocks().size());
  auto next = some.blocks().begin(), other = others.blocks().begin();
  const auto end = some.blocks().end(), other_end = others.blocks().end();
  while (next != end || other != other_end) {
    if (other == other_end || (next != end && next->is_before(*other))) {
      all.add(*next++);
    } else if (next == end || other->is_before(*next)) {
      all.add(*other++);
    } else {
      all.add({next->pair, next->number, next->channels | other->channels});
      ++next;
      ++other;
    }
  }
  return all;
}

std::vector<int32_t> count_circuits(const Setting& setting, size_t num_pairs) {
  std::vector<int32_t> counts(num_pairs, 0);
  for (const ChannelBlock& block : setting.blocks()) counts[static_cast<size_t>(block.pair)] += num_set(block.channels);
  return counts;
}

bool PairBlocks::read_row(int32_t first, int32_t count, Word* row) const {
  const size_t num_words = num_words_of(count);
  std::fill_n(row, num_words, Word{0});
  for (const ChannelBlock* block = begin_; block != end_; ++block) {
    const int32_t at = block->number * kWordBits - first;  // of its lowest channel in the row
    if (at >= count || at <= -kWordBits) continue;
    if (at < 0) {
      row[0] |= block->channels >> -at;
      continue;
    }
    const auto word = static_cast<size_t>(at / kWordBits);
    const int32_t shift = at % kWordBits;
    row[word] |= block->channels << shift;
    if (shift > 0 && word + 1 < num_words) row[word + 1] |= block->channels >> (kWordBits - shift);
  }
  if (count % kWordBits != 0) row[num_words - 1] &= bit_of(count) - 1;
  Word any = 0;
  for (size_t word = 0; word < num_words; ++word) any |= row[word];
  return any != 0;
}

int32_t PairBlocks::num_circuits() const {
  int32_t count = 0;
  for (const ChannelBlock* block = begin_; block != end_; ++block) count += num_set(block->channels);
  return count;
}

}  // namespace rostam::circuits
