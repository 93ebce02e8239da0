#include "circuits/edge_colouring.h"

#include "sim/errors.h"
#include "sim/interrupt.h"

namespace rostam::circuits {

namespace {

constexpr int32_t kFree = -1;

class Colouring {
 public:
  Colouring(int32_t num_vertices, const std::vector<std::pair<int32_t, int32_t>>& edges, int32_t num_colours)
      : edges_(edges),
        num_colours_(num_colours),
        colours_(edges.size(), -1),
        edge_at_(static_cast<size_t>(num_vertices) * static_cast<size_t>(num_colours), kFree) {}

  // REQUIRES: the colour is free at both ends.
  void begin_with(int32_t edge, int32_t colour) {
    const auto [u, v] = edges_[static_cast<size_t>(edge)];
    ROSTAM_CHECK(at(u, colour) == kFree && at(v, colour) == kFree, "two edges that meet want colour " << colour);
    assign(edge, colour);
  }

  // Gives `edge` a colour if it can.
  void colour(int32_t edge) {
    poll_interrupt();
    const auto [u, v] = edges_[static_cast<size_t>(edge)];
    for (int32_t c = 0; c < num_colours_; ++c) {
      if (at(u, c) == kFree && at(v, c) == kFree) return assign(edge, c);
    }
    for (int32_t at_u = 0; at_u < num_colours_; ++at_u) {
      if (at(u, at_u) != kFree) continue;
      for (int32_t at_v = 0; at_v < num_colours_; ++at_v) {
        if (at(v, at_v) != kFree || !exchange(v, u, at_u, at_v)) continue;
        return assign(edge, at_u);
      }
    }
  }

  std::vector<int32_t> take() { return std::move(colours_); }

 private:
  int32_t& at(int32_t vertex, int32_t colour) {
    return edge_at_[static_cast<size_t>(vertex) * static_cast<size_t>(num_colours_) + static_cast<size_t>(colour)];
  }

  void assign(int32_t edge, int32_t colour) {
    const auto [u, v] = edges_[static_cast<size_t>(edge)];
    at(u, colour) = edge;
    at(v, colour) = edge;
    colours_[static_cast<size_t>(edge)] = colour;
  }

  // Frees colour `wanted` at `start` by exchanging it with `spare`, free there, along the path of both colours that
  // begins at `start`. Refuses, changing nothing, if the path ends at `other`, where `wanted` would be taken.
  bool exchange(int32_t start, int32_t other, int32_t wanted, int32_t spare) {
    path_.clear();
    int32_t vertex = start;
    for (int32_t colour = wanted; at(vertex, colour) != kFree; colour = colour == wanted ? spare : wanted) {
      const int32_t edge = at(vertex, colour);
      path_.push_back(edge);
      const auto [u, v] = edges_[static_cast<size_t>(edge)];
      vertex = u == vertex ? v : u;
    }
    if (vertex == other) return false;
    for (const int32_t edge : path_) {
      const auto [u, v] = edges_[static_cast<size_t>(edge)];
      const int32_t old = colours_[static_cast<size_t>(edge)];
      at(u, old) = kFree;
      at(v, old) = kFree;
    }
    for (const int32_t edge : path_) assign(edge, colours_[static_cast<size_t>(edge)] == wanted ? spare : wanted);
    return true;
  }

  const std::vector<std::pair<int32_t, int32_t>>& edges_;
  int32_t num_colours_;
  std::vector<int32_t> colours_;  // of every edge, -1 without
  std::vector<int32_t> edge_at_;  // (vertex, colour) -> edge, or kFree
  std::vector<int32_t> path_;
};

}  // namespace

std::vector<int32_t> colour_edges(int32_t num_vertices, const std::vector<std::pair<int32_t, int32_t>>& edges,
                                  int32_t num_colours, const std::vector<int32_t>& wanted) {
  for (const auto& [u, v] : edges) ROSTAM_CHECK(u != v, "an edge joins vertex " << u << " to itself");
  Colouring colouring(num_vertices, edges, num_colours);
  for (size_t edge = 0; edge < wanted.size(); ++edge) {
    if (wanted[edge] >= 0) colouring.begin_with(static_cast<int32_t>(edge), wanted[edge]);
  }
  for (size_t edge = 0; edge < edges.size(); ++edge) {
    if (wanted.empty() || wanted[edge] < 0) colouring.colour(static_cast<int32_t>(edge));
  }
  return colouring.take();
}

}  // namespace rostam::circuits
