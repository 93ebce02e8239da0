// The layout of a group's ranks as Python gives it.
#pragma once

#include <pybind11/stl.h>

#include <cstdint>
#include <variant>
#include <vector>

#include "collectives/schedule.h"

namespace rostam::bindings {

// Ranks of every server, or of each one.
using GroupSizes = std::variant<int32_t, std::vector<int32_t>>;

// Orders of a server's ranks, one of each channel; or spanning trees (collectives::Layout).
using Rings = std::vector<std::vector<int32_t>>;

collectives::Layout make_layout(const GroupSizes& group_size, collectives::Sides grid, int32_t num_pieces, Rings rings,
                                Rings trees, Rings parts);

}  // namespace rostam::bindings
