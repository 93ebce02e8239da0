// Footprint: the engine links that something outside the programs may change during a run.
#pragma once

#include <cstdint>
#include <vector>

namespace rostam::folding {

struct Footprint {
  struct Link {
    int32_t link = 0;
    uint64_t label = 0;  // what happens to it: links with equal labels may stand for each other
  };
  bool is_any = false;  // any link, and routes: nothing is folded and no shortcut holds
  std::vector<Link> links;
  // Which of their switches' links messages take between accelerators of different switches: nothing is folded, but
  // shortcuts hold elsewhere, inside servers say.
  bool chooses_paths = false;
  // Where messages between accelerators of different switches go is read, and jobs may be held: the same holds.
  bool reads_messages = false;

  bool touches_links() const { return is_any || !links.empty(); }
};

}  // namespace rostam::folding
