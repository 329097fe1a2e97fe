// A CPU allocator that notes the allocations of one step, and answers those of later steps at planned offsets of one
// buffer. Only the thread that began the step is noted or served; what is not as planned comes from the allocator
// that was there before, which all other allocations reach directly. An allocation too many or too few costs no more
// than itself: those after it are found again by their sizes, near to where they were expected.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/extension.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

c10::Allocator* plain = nullptr;
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

  char* base() const { return static_cast<char*>(buffer.get()); }
};

std::shared_ptr<Arena> active;
std::thread::id owner;
std::unordered_map<void*, std::pair<std::shared_ptr<Arena>, int64_t>> held;  // served and noted blocks

void release(void* pointer) {
  std::shared_ptr<Arena> last;  // outlives the lock: the buffer may go with it
  {
    std::lock_guard<std::mutex> lock(guard);
    auto found = held.find(pointer);
    if (found != held.end()) {
      last = found->second.first;
      const int64_t number = found->second.second;
      held.erase(found);
      char* at = static_cast<char*>(pointer);
      if (last->buffer_bytes > 0 && at >= last->base() && at < last->base() + last->buffer_bytes) {
        last->lying.erase(at - last->base());
        return;
      }
      if (last == active && !last->replaying) last->died[number] = last->events++;
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

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    std::unique_lock<std::mutex> lock(guard);
    if (bytes == 0 || !active || std::this_thread::get_id() != owner) {
      lock.unlock();
      return plain->allocate(bytes);
    }
    Arena& arena = *active;
    const c10::Device device(c10::kCPU);
    const auto size = static_cast<int64_t>(bytes);
    if (!arena.replaying) {
      void* pointer = plain->raw_allocate(bytes);
      held[pointer] = {active, static_cast<int64_t>(arena.bytes.size())};
      arena.bytes.push_back(size);
      arena.born.push_back(arena.events++);
      arena.died.push_back(-1);
      return {pointer, pointer, release, device};
    }
    const int64_t number = find(arena, size);
    const int64_t begin = number < 0 ? -1 : arena.offsets[number];
    if (begin >= 0 && is_free(arena, begin, begin + size)) {
      arena.lying[begin] = begin + size;
      arena.served++;
      void* pointer = arena.base() + begin;
      held[pointer] = {active, number};
      return {pointer, pointer, release, device};
    }
    if (number < 0 || begin >= 0) arena.misses++;
    lock.unlock();
    return plain->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    plain->copy_data(target, source, bytes);
  }
};

Allocator allocator;

void begin(const std::shared_ptr<Arena>& arena, bool replay) {
  std::lock_guard<std::mutex> lock(guard);
  if (plain == nullptr) {
    plain = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&allocator, /*priority=*/100);
  }
  arena->replaying = replay;
  arena->next = arena->served = arena->misses = 0;
  arena->answered.assign(arena->offsets.size(), false);
  active = arena;
  owner = std::this_thread::get_id();
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
      .def("end", &end)
      .def("plan", &plan);
}
