// Refinement: the coarsest equitable partition of a graph whose edges have labels. All vertices of a class then have
// equally many edges of each label into every class.
//
// A worklist of classes to split others by, of the parts of a split class all but the largest (Hopcroft 1971; Cardon
// and Crochemore 1982): a vertex is looked at once for each time that its class has halved, however far a difference
// spreads. Example: refine({colours}, Edges(2, {{0, 1, 7}})) tells which vertices must be told apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rostam::folding {

// Undirected edges, by vertex.
class Edges {
 public:
  struct End {
    uint32_t vertex;
    uint32_t label;
  };
  struct Span {
    const End* first;
    const End* last;
    const End* begin() const { return first; }
    const End* end() const { return last; }
  };

  // `visit(add)` calls add(a, b, label) for every edge; it is called twice, with the same edges. Memory: 16 bytes an
  // edge.
  template <typename Visit>
  Edges(size_t num_vertices, Visit visit) : first_(num_vertices + 1, 0) {
    visit([this](uint32_t a, uint32_t b, uint32_t) { ++first_[a + 1], ++first_[b + 1]; });
    for (size_t v = 0; v < num_vertices; ++v) first_[v + 1] += first_[v];
    ends_.resize(first_.back());
    std::vector<size_t> next(first_.begin(), first_.end() - 1);
    visit([this, &next](uint32_t a, uint32_t b, uint32_t label) {
      ends_[next[a]++] = {b, label};
      ends_[next[b]++] = {a, label};
    });
  }

  Span of(uint32_t vertex) const { return {ends_.data() + first_[vertex], ends_.data() + first_[vertex + 1]}; }
  size_t num_vertices() const { return first_.size() - 1; }

 private:
  std::vector<size_t> first_;
  std::vector<End> ends_;
};

// The class of each vertex. Vertices of different colours are of different classes.
// Cost: O(edges x log vertices).
std::vector<int32_t> refine(const std::vector<uint64_t>& colours, const Edges& edges);

}  // namespace rostam::folding
