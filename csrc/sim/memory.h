// Memory that this process may still take, and the error of whoever would need more.
// Example: require_memory(1e12, "routes of 4 flows", "take fewer");
#pragma once

#include <string>

namespace rostam {

// The least of what the system says is available and what is left of the limits of the process's address space and of
// its group (cgroup v1, v2). Units: bytes; infinite if nothing is known, as outside of Linux.
double available_memory_bytes();

// Throws: ConfigError "WHAT need about X GB, but Y GB are available; ADVICE" where the bytes are more than that.
// Little (256 MB) is taken unseen. Units: bytes.
void require_memory(double bytes, const std::string& what, const std::string& advice);

}  // namespace rostam
