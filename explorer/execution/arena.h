// The allocations of one step: noted, and answered in later steps at planned offsets of one buffer. Only the thread and
// stream of the step are noted or served; what is not as planned comes from the allocator that was there before, which
// all other allocations reach directly. An allocation too many or too few costs no more than itself: those after it are
// found again by their sizes, near to where they were expected.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

std::mutex guard;

struct Arena {
  // What a step did: per allocation its bytes, and the events (allocations and releases) before it and its release.
  std::vector<int64_t> bytes, born, died;
  int64_t events = 0;
  // What is planned: per allocation its bytes and its offset, negative for what outlives the step.
  std::vector<int64_t> planned_bytes, offsets;
  c10::DataPtr buffer;
  int64_t buffer_bytes = 0;
  std::map<int64_t, int64_t> lying;  // in the buffer now: where each block begins and ends
  std::vector<bool> answered;        // of what is planned, in this step
  int64_t next = 0, served = 0, misses = 0;
  bool replaying = false;
  // Blocks that other streams use, too: not served anew in this step, and the next one waits for those streams.
  std::set<int64_t> shared, left;
  std::vector<c10::Stream> others;
  std::optional<c10::Stream> ran_on;  // in the last step

  char* base() const { return static_cast<char*>(buffer.get()); }
};

struct Block {
  std::shared_ptr<Arena> arena;
  int64_t number;
  c10::DataPtr noted;  // empty: it lies in the buffer
};

c10::Allocator* plain = nullptr;  // that was there before
c10::DeviceType kind = c10::DeviceType::CPU;
std::shared_ptr<Arena> active;
std::thread::id owner;
c10::Stream stream(c10::Stream::DEFAULT, c10::Device(c10::DeviceType::CPU));  // of the step
std::unordered_map<void*, Block> held;  // served and noted blocks

// Where the next kernel of this thread runs, on the current device or another one.
c10::Stream here(std::optional<c10::Device> device = std::nullopt) {
  if (kind == c10::DeviceType::CPU) return stream;
  const c10::impl::VirtualGuardImpl all(kind);
  return all.getStream(device.value_or(all.getDevice()));
}

void release(void* pointer) {
  Block last;  // outlives the lock: the buffer may go with it
  {
    std::lock_guard<std::mutex> lock(guard);
    auto found = held.find(pointer);
    if (found != held.end()) {
      last = std::move(found->second);
      held.erase(found);
      Arena& arena = *last.arena;
      if (!last.noted) {
        const int64_t at = static_cast<char*>(pointer) - arena.base();
        if (arena.shared.erase(at) > 0) {
          arena.left.insert(at);
        } else {
          arena.lying.erase(at);
        }
      } else if (last.arena == active && !arena.replaying) {
        arena.died[last.number] = arena.events++;
      }
      return;
    }
  }
  plain->raw_deallocate(pointer);
}

// How far from its place in the plan an allocation is looked for: a few extra ones, or a few that did not come.
constexpr int64_t kNear = 16;

// Which of the planned allocations this one is: the next, or else the nearest of its size that was not answered yet;
// -1 if none. It only guides: where a block still lies at that offset, the allocation is not served.
int64_t find(Arena& arena, int64_t bytes) {
  const auto count = static_cast<int64_t>(arena.offsets.size());
  for (int64_t away = 0; away <= kNear; away++) {
    for (int64_t number : {arena.next + away, arena.next - away}) {
      if (number < 0 || number >= count || arena.answered[number] || arena.planned_bytes[number] != bytes) continue;
      arena.answered[number] = true;
      arena.next = std::max(arena.next, number + 1);
      return number;
    }
  }
  return -1;
}

bool is_free(const Arena& arena, int64_t begin, int64_t end) {
  auto after = arena.lying.lower_bound(begin);
  if (after != arena.lying.end() && after->first < end) return false;
  return after == arena.lying.begin() || std::prev(after)->second <= begin;
}

c10::DataPtr answer(size_t bytes) {
  std::unique_lock<std::mutex> lock(guard);
  if (bytes == 0 || !active || std::this_thread::get_id() != owner || here() != stream) {
    lock.unlock();
    return plain->allocate(bytes);
  }
  Arena& arena = *active;
  const auto size = static_cast<int64_t>(bytes);
  if (!arena.replaying) {
    const std::shared_ptr<Arena> noting = active;
    lock.unlock();  // where memory is short, the allocator may call what releases some
    c10::DataPtr noted = plain->allocate(bytes);
    lock.lock();
    void* pointer = noted.get();
    const c10::Device device = noted.device();
    held[pointer] = {noting, static_cast<int64_t>(noting->bytes.size()), std::move(noted)};
    noting->bytes.push_back(size);
    noting->born.push_back(noting->events++);
    noting->died.push_back(-1);
    return {pointer, pointer, release, device};
  }
  const int64_t number = find(arena, size);
  const int64_t begin = number < 0 ? -1 : arena.offsets[number];
  if (begin >= 0 && is_free(arena, begin, begin + size)) {
    arena.lying[begin] = begin + size;
    arena.served++;
    void* pointer = arena.base() + begin;
    held[pointer] = {active, number, {}};
    return {pointer, pointer, release, arena.buffer.device()};
  }
  if (number < 0 || begin >= 0) arena.misses++;
  lock.unlock();
  return plain->allocate(bytes);
}

// Another stream uses a block, too: true if it lies in a buffer. Noted ones are for the allocator they come from.
bool share(const c10::DataPtr& block, c10::Stream other) {
  std::lock_guard<std::mutex> lock(guard);
  const auto found = held.find(block.get());
  if (found == held.end() || found->second.noted) return false;
  Arena& arena = *found->second.arena;
  if (other == stream) return true;
  arena.shared.insert(static_cast<char*>(block.get()) - arena.base());
  if (std::find(arena.others.begin(), arena.others.end(), other) == arena.others.end()) arena.others.push_back(other);
  return true;
}

void install();  // takes the place of the allocator that is there, once

void begin(const std::shared_ptr<Arena>& arena, bool replay, c10::DeviceIndex device) {
  std::lock_guard<std::mutex> lock(guard);
  if (plain == nullptr) install();
  owner = std::this_thread::get_id();
  stream = here(c10::Device(kind, device));
  if (arena->ran_on.has_value() && *arena->ran_on != stream) arena->others.push_back(*arena->ran_on);
  arena->ran_on = stream;
  for (const c10::Stream& other : std::exchange(arena->others, {})) {
    c10::Event event(kind);
    event.record(other);
    event.block(stream);
  }
  for (const int64_t at : std::exchange(arena->left, {})) arena->lying.erase(at);
  arena->replaying = replay;
  arena->next = arena->served = arena->misses = 0;
  arena->answered.assign(arena->offsets.size(), false);
  active = arena;
}

// The step goes on in this thread: the backward pass has one of its own on CUDA.
void go_on(const std::shared_ptr<Arena>& arena) {
  std::lock_guard<std::mutex> lock(guard);
  if (active == arena) owner = std::this_thread::get_id();
}

bool end(const std::shared_ptr<Arena>& arena) {
  std::lock_guard<std::mutex> lock(guard);
  const bool was = active == arena;
  if (was) active.reset();
  return was;
}

void plan(const std::shared_ptr<Arena>& arena, std::vector<int64_t> bytes, std::vector<int64_t> offsets, int64_t size) {
  c10::DataPtr buffer = plain->allocate(size);
  std::lock_guard<std::mutex> lock(guard);
  arena->planned_bytes = std::move(bytes);
  arena->offsets = std::move(offsets);
  arena->buffer = std::move(buffer);
  arena->buffer_bytes = size;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  pybind11::class_<Arena, std::shared_ptr<Arena>>(module, "Arena")
      .def(pybind11::init<>())
      .def_readonly("bytes", &Arena::bytes)
      .def_readonly("born", &Arena::born)
      .def_readonly("died", &Arena::died)
      .def_readonly("served", &Arena::served)
      .def_readonly("misses", &Arena::misses)
      .def("begin", &begin)
      .def("go_on", &go_on)
      .def("end", &end)
      .def("plan", &plan);
}
