// LightPaths: what of an optical fabric each circuit takes for itself, and which of that a failed part takes away.
// Example: make_ocs_paths(8, 2)->places_of(0, 1, 1) are the ports of accelerators 0 (out) and 1 (in) at switch 1.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "circuits/planner.h"
#include "circuits/ring_paths.h"

namespace rostam::circuits {

// ids. kPort: accelerator x Q + switch, both directions. kSwitch: of Q. kSegment: as Ring::cut_segments. kWavelength:
// fibre x W + wavelength, all the way round. kMicroRing: (accelerator x 2 + fibre) x W + wavelength; stuck, it neither
// sends nor receives that wavelength nor lets it pass.
enum class OpticalKind : uint8_t { kPort, kSwitch, kSegment, kWavelength, kMicroRing };
struct OpticalPart {
  OpticalKind kind = OpticalKind::kPort;
  int32_t id = 0;
};

// A place is held by one circuit at a time: one direction of a port; a wavelength on a segment, at a driver or at a
// receiver.
class LightPaths {
 public:
  virtual ~LightPaths() = default;
  virtual int32_t num_channels() const = 0;
  virtual int32_t num_places() const = 0;
  // Of a circuit from src to dst, in place of what `places` holds; none if its light does not arrive.
  virtual void find_places(int32_t src, int32_t dst, int32_t channel, std::vector<int32_t>& places) const = 0;
  std::vector<int32_t> places_of(int32_t src, int32_t dst, int32_t channel) const {
    std::vector<int32_t> places;
    find_places(src, dst, channel, places);
    return places;
  }
  // Of circuits that a setting gives up those whose places none that it adds needs: what it keeps held others before.
  // is_lost: of every place, or empty; lost places light no circuit.
  virtual Setting undisturbed(const PairList& pairs, const Setting& added, const Setting& given_up,
                              const std::vector<uint8_t>& is_lost) const;
  // That are lost with a part. Throws: ConfigError for a part that the fabric does not have.
  virtual std::vector<int32_t> places_of(const OpticalPart& part) const = 0;
};

std::unique_ptr<LightPaths> make_ocs_paths(int32_t num_accelerators, int32_t num_ocs);
std::unique_ptr<LightPaths> make_ring_paths(const Ring& ring);

}  // namespace rostam::circuits
