// Message: what one device sends to another, of a collective or point to point, from when it is made until it arrives.
#pragma once

#include <cstdint>

#include "runtime/carrier.h"
#include "runtime/mailbox_key.h"
#include "runtime/tasks.h"

namespace rostam::runtime {

struct Message : Parcel {  // from and to simulated devices
  bool is_free = true;     // no message: its place may be used
  bool is_lost = false;    // its job was cut on its way: its arrival is not reported
  int32_t peer = 0;        // the device of the graph that it stands for
  int32_t slot = 0;
  int32_t category = 0;
  int32_t iteration = 0;
  CriticalPath::Ref origin;
  // Of a collective: the step of which one.
  int32_t step = 0;
  uint32_t occurrence = 0;
  bool is_synchronous = false;  // holds its sender until it is delivered
  bool is_ordered = false;      // the receiver counts what comes, whatever the step
  // Point to point: the task that sends it and where it arrives.
  bool is_send = false;
  TaskRef sender;
  MailboxKey mailbox;
};

// Hears of messages. `message` is valid during the call only.
class MessageClient {
 public:
  virtual ~MessageClient() = default;
  virtual void on_sent(const Message& message) = 0;
  virtual void on_delivered(Message& message) = 0;
};

}  // namespace rostam::runtime
