// Work: what a bound function does that may take long. Other Python threads run meanwhile, and a signal (Ctrl-C) ends
// it at the next poll_interrupt().
// Example: { const Work work; found = routing::find_dependencies(...); }; or py::call_guard<Work>().
#pragma once

#include <pybind11/pybind11.h>

#include "sim/interrupt.h"

namespace rostam::bindings {

// Throws: what Python's handlers of the signals that have arrived raise.
void stop_on_signal();

// For short functions that may find long work to do first, with Python objects at hand: a signal ends it, but other
// threads wait.
class ShortWork {
 private:
  InterruptScope scope_{stop_on_signal};
};

// REQUIRES: the function touches no Python objects while it lasts.
class Work {
 public:
  Work() : scope_(stop_on_signal) {}

 private:
  pybind11::gil_scoped_release release_;
  InterruptScope scope_;
};

}  // namespace rostam::bindings
