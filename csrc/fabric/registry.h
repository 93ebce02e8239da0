// Registry of fabrics by name. A fabric is one file that defines design_<name> and one line in builtin.inc.
// Example: make_fabric("torus", params)->num_accelerators().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/params.h"

namespace rostam::fabric {

#define ROSTAM_FABRIC(name) Blueprint design_##name(const Params& params);
#include "fabric/builtin.inc"
#undef ROSTAM_FABRIC

// Throws: ConfigError listing the registered names if `name` is not one of them.
std::shared_ptr<const Fabric> make_fabric(const std::string& name, const Params& params);

std::vector<std::string> fabric_names();

}  // namespace rostam::fabric
