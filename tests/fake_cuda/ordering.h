// Streams, and moments on them.
#pragma once

#include "device.h"

#include <map>
#include <utility>

namespace fake {

using Stream = std::pair<c10::DeviceIndex, c10::StreamId>;
using Clock = std::map<Stream, uint64_t>;

inline Stream key(Where where) { return {where.device, where.stream}; }

struct Use {
  Stream stream;
  uint64_t time;
};

// The kernel launched last on a stream, and whether work that is launched on another one now comes after it.
Use now(Where where);
bool is_over(const Use& use, Where where);

}  // namespace fake
