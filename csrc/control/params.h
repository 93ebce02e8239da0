// ControllerParams: the plain arguments of one controller by name.
// Example: params.integers("link"); params.numbers("bytes_per_s").
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/errors.h"

namespace rostam::control {

using ParamValue = std::variant<std::vector<int64_t>, std::vector<double>, std::string>;

class ControllerParams {
 public:
  ControllerParams(std::string controller, std::map<std::string, ParamValue> values)
      : controller_(std::move(controller)), values_(std::move(values)) {}

  const std::string& controller() const { return controller_; }
  bool has(const std::string& key) const { return values_.count(key) > 0; }

  // Throws: ConfigError if the key is missing or of another kind. Whole numbers are numbers, too.
  std::vector<int64_t> integers(const std::string& key) const {
    if (const auto* found = std::get_if<std::vector<int64_t>>(&value(key))) return *found;
    throw_kind(key, "a list of integers");
  }
  std::vector<double> numbers(const std::string& key) const {
    if (const auto* found = std::get_if<std::vector<double>>(&value(key))) return *found;
    if (const auto* found = std::get_if<std::vector<int64_t>>(&value(key))) return {found->begin(), found->end()};
    throw_kind(key, "a list of numbers");
  }

  const std::string& text(const std::string& key) const {
    if (const auto* found = std::get_if<std::string>(&value(key))) return *found;
    throw_kind(key, "text");
  }
  int64_t integer(const std::string& key) const {
    const auto* found = std::get_if<std::vector<int64_t>>(&value(key));
    if (found == nullptr || found->size() != 1) throw_kind(key, "one whole number below 2^63");
    return found->front();
  }
  double number(const std::string& key) const { return single(key, numbers(key)); }

  // Throws: ConfigError for keys other than these.
  void check_keys(const std::vector<std::string>& known) const {
    for (const auto& [key, value] : values_) {
      std::string allowed;
      bool is_known = false;
      for (const std::string& one : known) {
        is_known = is_known || one == key;
        allowed += (allowed.empty() ? "" : ", ") + one;
      }
      if (!is_known)
        ROSTAM_THROW(ConfigError, "controller " << controller_ << " has no " << key << "; it takes " << allowed);
    }
  }

 private:
  template <typename T>
  T single(const std::string& key, const std::vector<T>& values) const {
    if (values.size() != 1) throw_kind(key, "one number");
    return values.front();
  }
  const ParamValue& value(const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) ROSTAM_THROW(ConfigError, "controller " << controller_ << " needs " << key);
    return found->second;
  }
  [[noreturn]] void throw_kind(const std::string& key, const char* kind) const {
    ROSTAM_THROW(ConfigError, "controller " << controller_ << ": " << key << " must be " << kind);
  }
  std::string controller_;
  std::map<std::string, ParamValue> values_;
};

}  // namespace rostam::control
