// Errors of the core, mapped one to one onto rostam_py.errors, and the always-on check macro.
// Example: ROSTAM_CHECK(bytes >= 0, "flow " << id << " has " << bytes << " bytes left");
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace rostam {

struct ConfigError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Simulated time, or a sum of bytes, beyond what the core can count. Whoever knows the task adds it to the message.
struct RangeError : ConfigError {
  using ConfigError::ConfigError;
};
struct NoRouteError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct DeadlockError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

}  // namespace rostam

#define ROSTAM_THROW(Error, message)        \
  do {                                      \
    std::ostringstream rostam_message;      \
    rostam_message << message; /* NOLINT */ \
    throw Error(rostam_message.str());      \
  } while (false)

// Holds in every build; a failure is a bug in rostam, never the user's fault.
#define ROSTAM_CHECK(condition, message)                                                                     \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      ROSTAM_THROW(::rostam::InternalError, __FILE__ << ":" << __LINE__ << ": " #condition ": " << message); \
    }                                                                                                        \
  } while (false)

// For loops that run once a packet or once a flow and link; compiled out with NDEBUG.
#ifdef NDEBUG
#define ROSTAM_DCHECK(condition, message) \
  do {                                    \
  } while (false)
#else
#define ROSTAM_DCHECK(condition, message) ROSTAM_CHECK(condition, message)
#endif
