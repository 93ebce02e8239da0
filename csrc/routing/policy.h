// RoutePolicy: turns a pair of accelerators of one plane into a route. Paths start at src and end at dst; they need not
// be shortest ones: a fabric may say which paths it allows (fabric::PathRule), and a policy may take others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "routing/engine_links.h"
#include "routing/route.h"

namespace rostam::routing {

// What waits for links at a moment: of a network, or of loads that are summed up.
class LinkBacklog {
 public:
  virtual ~LinkBacklog() = default;
  // Bytes that have still to cross an engine link, of all that is under way.
  virtual double bytes_waiting(int32_t link) const = 0;
  // Bytes that cross it concurrently with a message that starts now and would by itself be through in `alone_s`: what
  // waits, where links serve one message after another; where messages share them, what those under way would send in
  // that time if each were not held up.
  virtual double bytes_beside(int32_t link, double /*alone_s*/) const { return bytes_waiting(link); }
};

// What of a route is asked for: the links and their shares; the steps as well; or all that packets need, for which a
// routing may state detours in place of steps.
enum class Detail : uint8_t { kShares, kSteps, kPackets };

struct RouteQuery {
  uint64_t hash = 0;                     // of the message or channel; ignored by policies that take all paths
  bool wants_steps = false;              // fill Route::steps. REQUIRES: a policy without bundles
  const LinkBacklog* backlog = nullptr;  // for policies that read it; null: nothing waits anywhere
  double num_bytes = 0;                  // of the message, on one plane; for the same policies
  // Channels of steps are numbered 0, 1, ... on each link, below num_virtual_channels(); other ways than the minimal
  // ones may be stated as detours. REQUIRES: wants_steps.
  bool for_packets = false;
};

// Flow i carries num_bytes[i] from accelerator src[i] to dst[i].
struct Flows {
  std::vector<int32_t> src;
  std::vector<int32_t> dst;
  std::vector<double> num_bytes;
};

class RoutePolicy {
 public:
  virtual ~RoutePolicy() = default;

  // Route of a message from accelerator `src` to `dst`. REQUIRES: src != dst.
  // Throws: NoRouteError if no path is left, ConfigError for accelerators that do not exist.
  virtual Route route(int32_t src, int32_t dst, const RouteQuery& query) const = 0;

  // Steps over all paths that messages of the pair may take, whatever their hash. REQUIRES: a policy without bundles.
  // Throws: as route, and ConfigError for a policy that cannot say.
  virtual Route every_path(int32_t src, int32_t dst) const;

  // True if the route depends on the pair alone, so that it may be cached and folded.
  virtual bool is_hash_free() const = 0;

  // True if the route depends on what waits for links, so that it holds for the message that asks alone.
  virtual bool reads_backlog() const { return false; }

  // True if engines divide messages over a route's paths (Route::is_adaptive).
  virtual bool is_adaptive() const { return false; }

  // True if the route depends on the shape of the fabric alone: a map of the fabric onto itself, links onto equal
  // links, takes routes to routes with the same shares.
  virtual bool follows_symmetries() const { return false; }

  // The fabric that routes lead over, failures included.
  virtual const fabric::Fabric& fabric() const = 0;

  // The engine links that routes name.
  virtual const EngineLinks& links() const = 0;

  // The most virtual channels that packets take on one link; those that end there need one.
  virtual int32_t num_virtual_channels() const { return 1; }
  // Whether it takes equally many after any failures, so that one example tells how many.
  virtual bool has_same_channels_after_failures() const { return true; }

  // What a reader of results should know of this routing on this fabric, in a sentence: that it stands for another one
  // there, or suits it badly. Empty: nothing.
  virtual std::string note() const { return {}; }

  // Adds the bytes that the flows put on each engine link, flow i with hash i; flows of an accelerator to itself and
  // those without bytes put none. Cost: flows x path, or less where a policy knows how.
  virtual void add_loads(const Flows& flows, std::vector<double>& loads) const;

  // The same where each of `members` sends num_bytes to every other one; the k-th times the l-th has hash k x size + l.
  virtual void add_uniform_loads(const std::vector<int32_t>& members, double num_bytes,
                                 std::vector<double>& loads) const;

 protected:
  // Adds what one flow puts on its links.
  void add_flow(int32_t src, int32_t dst, double num_bytes, uint64_t hash, std::vector<double>& loads) const;
};

}  // namespace rostam::routing
