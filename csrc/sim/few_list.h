// FewList: a list of plain values whose first kFew stand in it, so that short lists, as most are, cost no memory of
// their own and no way to it.
// Example: FewList<uint32_t, 4> list; list.push_back(7); list.back() == 7
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace rostam {

template <typename T, uint32_t kFew>
class FewList {
  static_assert(std::is_trivially_copyable<T>::value && std::is_trivially_destructible<T>::value, "plain values only");

 public:
  FewList() : values_() {}
  ~FewList() {
    if (room_ > kFew) delete[] values_.many;
  }
  FewList(FewList&& other) noexcept : values_() { swap(other); }
  FewList& operator=(FewList&& other) noexcept {
    swap(other);
    return *this;
  }
  FewList(const FewList&) = delete;
  FewList& operator=(const FewList&) = delete;

  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return room_ > kFew ? values_.many : values_.few; }
  T* end() { return begin() + size_; }
  const T* begin() const { return room_ > kFew ? values_.many : values_.few; }
  const T* end() const { return begin() + size_; }
  T& operator[](uint32_t index) { return begin()[index]; }
  const T& operator[](uint32_t index) const { return begin()[index]; }
  T& back() { return begin()[size_ - 1]; }
  void push_back(const T& value) {
    const T copy = value;  // it may stand in this list
    if (size_ == room_) grow();
    begin()[size_++] = copy;
  }
  void pop_back() { --size_; }
  // Cost: the list's length.
  void pop_front() {
    std::copy(begin() + 1, end(), begin());
    --size_;
  }
  // The same of the first `count`.
  void drop_front(uint32_t count) {
    std::copy(begin() + count, end(), begin());
    size_ -= count;
  }
  void clear() { size_ = 0; }

 private:
  void grow() {
    T* more = new T[size_t{2} * room_];
    std::copy(begin(), end(), more);
    if (room_ > kFew) delete[] values_.many;
    values_.many = more;
    room_ *= 2;
  }
  void swap(FewList& other) {
    std::swap(values_, other.values_);
    std::swap(size_, other.size_);
    std::swap(room_, other.room_);
  }

  union Values {
    T few[kFew];
    T* many;  // where room_ > kFew
  };
  Values values_;
  uint32_t size_ = 0;
  uint32_t room_ = kFew;
};

}  // namespace rostam
