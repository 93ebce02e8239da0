// IdLists: lists of ids, one behind another in one array: a list for every link of a large fabric costs no memory of
// its own.
// Example: IdLists({1, 0, 1}, 2)[1] has 0 and 2
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rostam::routing {

struct IdSpan {
  const int32_t* first = nullptr;
  const int32_t* last = nullptr;

  const int32_t* begin() const { return first; }
  const int32_t* end() const { return last; }
  size_t size() const { return static_cast<size_t>(last - first); }
  int32_t front() const { return *first; }
};

class IdLists {
 public:
  IdLists() = default;
  // Id i is in list list_of[i], behind smaller ones. REQUIRES: 0 <= list_of[i] < num_lists.
  IdLists(const std::vector<int32_t>& list_of, size_t num_lists) : begin_(num_lists + 1, 0), ids_(list_of.size()) {
    for (const int32_t list : list_of) ++begin_[static_cast<size_t>(list) + 1];
    for (size_t k = 0; k < num_lists; ++k) begin_[k + 1] += begin_[k];
    std::vector<int64_t> next(begin_.begin(), begin_.end() - 1);
    for (size_t i = 0; i < list_of.size(); ++i) {
      ids_[static_cast<size_t>(next[static_cast<size_t>(list_of[i])]++)] = static_cast<int32_t>(i);
    }
  }

  size_t size() const { return begin_.size() - 1; }
  IdSpan operator[](size_t list) const { return {ids_.data() + begin_[list], ids_.data() + begin_[list + 1]}; }
  void add(IdSpan ids) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    begin_.push_back(static_cast<int64_t>(ids_.size()));
  }
  // Adds the lists of another one, with this much added to each of their ids.
  void append(const IdLists& other, int32_t offset) {
    const auto num_ids = static_cast<int64_t>(ids_.size());
    begin_.reserve(begin_.size() + other.size());
    for (size_t k = 1; k < other.begin_.size(); ++k) begin_.push_back(other.begin_[k] + num_ids);
    ids_.reserve(ids_.size() + other.ids_.size());
    for (const int32_t id : other.ids_) ids_.push_back(id + offset);
  }
  std::vector<std::vector<int32_t>> to_vectors() const {
    std::vector<std::vector<int32_t>> lists;
    for (size_t k = 0; k < size(); ++k) lists.emplace_back((*this)[k].begin(), (*this)[k].end());
    return lists;
  }

 private:
  std::vector<int64_t> begin_ = {0};  // of each list, in ids_; one more at the end
  std::vector<int32_t> ids_;
};

}  // namespace rostam::routing
