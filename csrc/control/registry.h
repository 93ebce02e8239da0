// Registry of controllers by name. A controller is one file that defines make_<name>_controller and a line in
// builtin.inc.
// Example: make_controller("link_bandwidth", {{"time_ps", times}, {"link", links}, {"bytes_per_s", rates}}).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "control/controller.h"
#include "control/params.h"

namespace rostam::control {

#define ROSTAM_CONTROLLER(name, summary) std::unique_ptr<Controller> make_##name##_controller(const ControllerParams&);
#include "control/builtin.inc"
#undef ROSTAM_CONTROLLER

// A controller serves one run. Throws: ConfigError listing the registered names if `name` is not one of them, or for
// parameters that the controller does not take.
std::unique_ptr<Controller> make_controller(const std::string& name, std::map<std::string, ParamValue> parameters);

// One line for lists. Throws: as make_controller.
std::string controller_summary(const std::string& name);

std::vector<std::string> controller_names();

}  // namespace rostam::control
