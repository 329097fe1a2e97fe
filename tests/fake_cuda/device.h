// What the parts of the device that is not there know of each other.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>

namespace fake {

constexpr c10::DeviceIndex kDevices = 2;

struct Where {
  c10::DeviceIndex device;
  c10::StreamId stream;
};

// The current device and its stream in this thread, and a stream that nobody has (device.cpp).
Where here();
c10::StreamId new_stream();

// What happens before what (ordering.cpp): each kernel of a stream is after those launched there before it, after what
// its stream waited for, and after what the host waited for before launching it.
void launched(Where where);
int64_t recorded(Where where);
void waits(Where where, int64_t event);
void host_waits(int64_t event);
void host_waits_for(Where where);
void host_waits_for_all();

// Memory, which lies on the host (memory.cpp). Addresses are those of storages.
void used(const void* address, bool written, const char* by);
void used_on(const void* address, c10::StreamId stream);

// What Tensor.record_stream asks: used_on, or the caching allocator (caching.cpp).
extern void (*record_stream)(const c10::DataPtr& block, const c10::Stream& stream);

}  // namespace fake
