// Which work is known to be over when other work begins: a clock for each stream, as vector clocks have it.
#include "ordering.h"

#include <map>
#include <mutex>
#include <vector>

namespace fake {
namespace {

// Never destroyed: tensors are released when Python is gone.
auto& guard = *new std::mutex;
auto& clocks = *new std::map<Stream, Clock>;
auto& host = *new Clock;
auto& events = *new std::vector<Clock>;

void merge(Clock& mine, const Clock& other) {
  for (const auto& [stream, time] : other) {
    mine[stream] = std::max(mine[stream], time);
  }
}

}  // namespace

void launched(Where where) {
  const std::lock_guard lock(guard);
  auto& clock = clocks[key(where)];
  merge(clock, host);
  ++clock[key(where)];
}

int64_t recorded(Where where) {
  const std::lock_guard lock(guard);
  events.push_back(clocks[key(where)]);
  return static_cast<int64_t>(events.size()) - 1;
}

void waits(Where where, int64_t event) {
  const std::lock_guard lock(guard);
  merge(clocks[key(where)], events.at(event));
}

void host_waits(int64_t event) {
  const std::lock_guard lock(guard);
  merge(host, events.at(event));
}

void host_waits_for(Where where) {
  const std::lock_guard lock(guard);
  merge(host, clocks[key(where)]);
}

void host_waits_for_all() {
  const std::lock_guard lock(guard);
  for (const auto& [stream, clock] : clocks) {
    merge(host, clock);
  }
}

Use now(Where where) {
  const std::lock_guard lock(guard);
  return {key(where), clocks[key(where)][key(where)]};
}

bool is_over(const Use& use, Where where) {
  const std::lock_guard lock(guard);
  const auto of = [&](Clock& clock) { return clock[use.stream]; };
  return use.stream == key(where) || std::max(of(clocks[key(where)]), of(host)) >= use.time;
}

}  // namespace fake
