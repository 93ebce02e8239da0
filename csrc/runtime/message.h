// Message: what one device sends to another, of a collective or point to point, from when it is made until it arrives.
#pragma once

#include <cstdint>

#include "network/network.h"
#include "runtime/mailbox_key.h"
#include "runtime/tasks.h"

namespace rostam::runtime {

enum class MessageState : uint8_t {
  kFree,     // no message: its place may be used
  kMade,     // not sent yet
  kParked,   // waits for a route
  kSending,  // on the network
  kSent,     // its last byte has left its source; it arrives later
  kCut,      // the same of a job that was cut: nobody hears of its arrival
};

struct Message {
  MessageState state = MessageState::kFree;
  int32_t source = 0;
  int32_t target = 0;  // simulated device
  int32_t peer = 0;    // the device of the graph that it stands for
  int32_t slot = 0;
  int64_t bytes = 0;
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
  // On the network.
  network::RouteId route = 0;
  network::TransferId transfer = 0;
  double carried = 0;  // bytes that it puts on links, its lanes' together
};

// Hears of messages. `message` is valid during the call only.
class MessageClient {
 public:
  virtual ~MessageClient() = default;
  virtual void on_sent(const Message& message) = 0;
  virtual void on_delivered(Message& message) = 0;
};

}  // namespace rostam::runtime
