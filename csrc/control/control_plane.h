// ControlPlane: what a controller can see and do in a running simulation. Implemented by runtime.
// Links are engine links of the route table; accelerators are the fabric's. Changes hold from now on.
#pragma once

#include <cstdint>
#include <vector>

#include "routing/route.h"

namespace rostam::control {

class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  virtual SimTime now() const = 0;

  // Calls the controller's wake() then. REQUIRES: time >= now().
  virtual void wake_at(SimTime time) = 0;

  // Bytes that messages between two accelerators have still to send.
  virtual double backlog(int32_t src, int32_t dst) const = 0;
  // Bytes that crossed a link up to now.
  virtual double link_load(int32_t link) const = 0;

  // Units: [bytes/s]; 0 stalls what is on the link. Throws: ConfigError for a link that does not exist.
  virtual void set_capacity(int32_t link, double bytes_per_s) = 0;

  // Messages between two accelerators take these links, those under way with what is left of them. REQUIRES: the
  // controller's footprint is any. Throws: ConfigError for a link that does not exist or is removed; InternalError if
  // the route does not lead from src to dst.
  virtual void set_route(int32_t src, int32_t dst, const std::vector<routing::LinkShare>& links, SimTime latency) = 0;

  // Adds a directed link between two accelerators; returns its id. Removing a link stalls what is on it until that is
  // given another route. REQUIRES: the footprint is any.
  virtual int32_t add_link(int32_t src, int32_t dst, double bytes_per_s) = 0;
  virtual void remove_links(const std::vector<int32_t>& links) = 0;
};

}  // namespace rostam::control
