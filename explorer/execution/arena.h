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
#ifndef _WIN32
#include <pthread.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

struct Arena {
  // What a step did: per allocation its bytes, and the events (allocations and releases) before it and its release.
  std::vector<int64_t> bytes, born, died;
  int64_t events = 0;
  // Of these, what leaves the step: a gradient is freed where it is added to one that is there, and stays elsewhere.
  std::vector<int64_t> leaving;
  // What is planned: per allocation its bytes and its offset, negative for what outlives the step.
  std::vector<int64_t> planned_bytes, offsets;
  std::vector<bool> outlived;  // it was there when its step was over, and lies beside the buffer until it is not
  c10::DataPtr buffer;
  int64_t buffer_bytes = 0;
  std::map<int64_t, int64_t> lying;  // in the buffer now: where each block begins and ends
  std::vector<bool> answered;        // of what is planned, in this step
  int64_t step = 0, next = 0, served = 0, misses = 0;
  int64_t completed = 0;  // the last step that ended with its backward pass
  bool replaying = false;
  // Blocks that other streams than their own use, too, by where they lie: released, they are nobody's in this step, and
  // the next one waits for those streams.
  std::map<int64_t, std::vector<c10::Stream>> shared;
  std::vector<int64_t> left;
  std::vector<c10::Stream> others;
  std::optional<c10::Stream> ran_on, placed_on;  // the last step, and the buffer's

  char* base() const { return static_cast<char*>(buffer.get()); }
};

struct Block {
  std::shared_ptr<Arena> arena;  // in whose buffer it lies
  std::weak_ptr<Arena> of;       // that noted it, or that it lies beside, and whose buffer need not stay for it
  int64_t number = -1;
  c10::DataPtr inner;  // noted, beside the buffer or only held; empty: it lies in the buffer
  std::optional<c10::Stream> on;
  bool shared = false;  // noted, and another stream uses it
  int64_t step = 0;     // that it was served in, or lay beside the buffer in
};

// Never destroyed: blocks are released when Python is gone.
auto& guard = *new std::mutex;
auto& held = *new std::unordered_map<void*, Block>;  // served and noted blocks
auto& active = *new std::shared_ptr<Arena>;
std::atomic<bool> is_active = false;
std::thread::id owner;
c10::Stream stream(c10::Stream::DEFAULT, c10::Device(c10::DeviceType::CPU));  // of the step
c10::Allocator* plain = nullptr;  // that was there before
c10::DeviceType kind = c10::DeviceType::CPU;

// Of each kind of device: takes the place of the allocator that is there, once; and keeps a buffer for another stream,
// too, when it goes.
void install();
void keep_for(const c10::DataPtr& buffer, c10::Stream other);

// Where the next kernel of this thread runs, on the current device or another one.
c10::Stream here(std::optional<c10::Device> device = std::nullopt) {
  if (kind == c10::DeviceType::CPU) return stream;
  const c10::impl::VirtualGuardImpl all(kind);
  return all.getStream(device.value_or(all.getDevice()));
}

// Is this the thread of a step, on its stream? With the lock.
bool serves() { return active && std::this_thread::get_id() == owner && here() == stream; }

void activate(std::shared_ptr<Arena>& arena) {
  std::swap(active, arena);
  is_active = static_cast<bool>(active);
}

bool is_same(const std::weak_ptr<Arena>& one, const std::shared_ptr<Arena>& other) {
  return !one.owner_before(other) && !other.owner_before(one);
}

// Is it a block that was served, noted or held? It is not any more.
bool let_go(void* pointer) {
  Block last;  // outlives the lock: the buffer may go with it
  std::lock_guard<std::mutex> lock(guard);
  const auto found = held.find(pointer);
  if (found == held.end()) return false;
  last = std::move(found->second);
  held.erase(found);
  if (last.inner) {
    if (!active || !is_same(last.of, active)) return true;
    if (!active->replaying) {
      if (!last.shared) active->died[last.number] = active->events++;
    } else if (last.step == active->step) {
      active->outlived[last.number] = false;  // over before its step is: its place is its own again
    }
    return true;
  }
  Arena& arena = *last.arena;
  const int64_t at = static_cast<char*>(pointer) - arena.base();
  std::vector<c10::Stream> others;
  if (const auto known = arena.shared.find(at); known != arena.shared.end()) {
    others = std::move(known->second);
    arena.shared.erase(known);
  }
  if (*last.on != *arena.ran_on) others.push_back(*last.on);
  if (others.empty()) {
    arena.lying.erase(at);
  } else {
    arena.left.push_back(at);
    arena.others.insert(arena.others.end(), others.begin(), others.end());
  }
  return true;
}

void release(void* pointer) {
  if (!let_go(pointer)) plain->raw_deallocate(pointer);
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

constexpr size_t kMostNoted = size_t{1} << 22;  // allocations of a step

c10::DataPtr answer(size_t bytes) {
  if (bytes == 0 || !is_active) return plain->allocate(bytes);
  std::shared_ptr<Arena> asked;  // outlives the lock: another thread may give it up meanwhile, and its buffer go with it
  std::unique_lock<std::mutex> lock(guard);
  if (!serves()) {
    lock.unlock();
    return plain->allocate(bytes);
  }
  Arena& arena = *active;
  const auto size = static_cast<int64_t>(bytes);
  if (!arena.replaying) {
    asked = active;
    lock.unlock();  // where memory is short, the allocator may call what releases some
    c10::DataPtr inner = plain->allocate(bytes);
    lock.lock();
    if (active != asked || asked->bytes.size() == kMostNoted) return inner;
    void* pointer = inner.get();
    const c10::Device device = inner.device();
    held[pointer] = {nullptr, asked, static_cast<int64_t>(asked->bytes.size()), std::move(inner), stream};
    asked->bytes.push_back(size);
    asked->born.push_back(asked->events++);
    asked->died.push_back(-1);
    return {pointer, pointer, release, device};
  }
  const int64_t number = find(arena, size);
  const int64_t begin = number < 0 ? -1 : arena.offsets[number];
  const bool beside = begin >= 0 && arena.outlived[number];
  if (begin >= 0 && !beside && is_free(arena, begin, begin + size)) {
    arena.lying[begin] = begin + size;
    arena.served++;
    void* pointer = arena.base() + begin;
    held[pointer] = {active, {}, number, {}, stream, false, arena.step};
    return {pointer, pointer, release, arena.buffer.device()};
  }
  if (number < 0 || begin >= 0) arena.misses++;
  const int64_t step = arena.step;
  asked = active;
  lock.unlock();
  c10::DataPtr inner = plain->allocate(bytes);
  if (!beside) return inner;
  lock.lock();
  void* pointer = inner.get();
  const c10::Device device = inner.device();
  held[pointer] = {nullptr, asked, number, std::move(inner), stream, false, step};
  return {pointer, pointer, release, device};
}

int64_t begin(const std::shared_ptr<Arena>& arena, bool replay, c10::DeviceIndex device) {
  std::vector<c10::Stream> others;
  std::unique_lock<std::mutex> lock(guard);
  if (plain == nullptr) install();
  const c10::Stream now = here(c10::Device(kind, device));
  if (arena->ran_on.has_value() && *arena->ran_on != now) arena->others.push_back(*arena->ran_on);
  std::swap(others, arena->others);
  arena->ran_on = now;
  for (const int64_t at : std::exchange(arena->left, {})) arena->lying.erase(at);
  // What still lies there of a step that is over has outlived it, and may do so again: it has no place there until one of
  // its kind is over in time. A step that was dropped, or is under way, says nothing of the others.
  for (const auto& [at, end] : arena->lying) {
    const auto found = held.find(arena->base() + at);
    if (found == held.end() || found->second.number < 0) continue;
    if (found->second.step == arena->completed) arena->outlived[found->second.number] = true;
  }
  lock.unlock();
  for (const c10::Stream& other : others) {
    c10::Event event(kind);
    event.record(other);
    event.block(now);
  }
  if (arena->buffer && now != *arena->placed_on) keep_for(arena->buffer, now);
  std::shared_ptr<Arena> next = arena;  // and then the last one, which may go with its buffer: without the lock
  lock.lock();
  arena->replaying = replay;
  arena->next = arena->served = arena->misses = 0;
  arena->answered.assign(arena->offsets.size(), false);
  owner = std::this_thread::get_id();
  stream = now;
  activate(next);
  const int64_t step = ++arena->step;
  lock.unlock();
  return step;
}

// The step goes on in this thread: the backward pass has one of its own on CUDA.
void go_on(const std::shared_ptr<Arena>& arena, int64_t step) {
  std::lock_guard<std::mutex> lock(guard);
  if (active == arena && arena->step == step) owner = std::this_thread::get_id();
}

// This tensor's memory, if it was noted, is for those who come after the step.
void leave(const std::shared_ptr<Arena>& arena, int64_t pointer) {
  std::lock_guard<std::mutex> lock(guard);
  const auto found = held.find(reinterpret_cast<void*>(pointer));
  if (found == held.end() || !found->second.inner || !is_same(found->second.of, arena)) return;
  arena->leaving.push_back(found->second.number);
}

// Is it the step that was under way? It is over.
bool end(const std::shared_ptr<Arena>& arena, int64_t step, bool completed) {
  std::shared_ptr<Arena> none;
  std::lock_guard<std::mutex> lock(guard);
  if (active != arena || arena->step != step) return false;
  if (completed) arena->completed = step;
  activate(none);
  return true;
}

// Does nothing of an earlier step lie in the buffer? What other streams may still use is over when the next step begins.
bool is_empty(const std::shared_ptr<Arena>& arena) {
  std::lock_guard<std::mutex> lock(guard);
  return arena->lying.size() == arena->left.size();
}

void plan(const std::shared_ptr<Arena>& arena, std::vector<int64_t> bytes, std::vector<int64_t> offsets, int64_t size) {
  c10::DataPtr buffer = plain->allocate(size);
  std::lock_guard<std::mutex> lock(guard);
  arena->planned_bytes = std::move(bytes);
  arena->offsets = std::move(offsets);
  arena->outlived.assign(arena->offsets.size(), false);
  arena->buffer = std::move(buffer);
  arena->buffer_bytes = size;
  arena->placed_on = here(arena->ran_on->device());
}

#ifndef _WIN32
// A process that forks between, as loaders of batches do, has neither the lock nor a step under way in its child.
const bool forks = [] {
  pthread_atfork(
      [] { guard.lock(); },
      [] { guard.unlock(); },
      [] {
        new std::shared_ptr<Arena>(std::move(active));  // its memory is the parent's
        is_active = false;
        guard.unlock();
      });
  return true;
}();
#endif

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  pybind11::class_<Arena, std::shared_ptr<Arena>>(module, "Arena", pybind11::module_local())
      .def(pybind11::init<>())
      .def_readonly("bytes", &Arena::bytes)
      .def_readonly("born", &Arena::born)
      .def_readonly("died", &Arena::died)
      .def_readonly("leaving", &Arena::leaving)
      .def_readonly("served", &Arena::served)
      .def_readonly("misses", &Arena::misses)
      .def("begin", &begin)
      .def("go_on", &go_on)
      .def("leave", &leave)
      .def("end", &end)
      .def("is_empty", &is_empty)
      .def("plan", &plan);
}
