// The device's memory: on the host, each allocation and release noted, and how streams use it. What a caching allocator
// would make of that is worked out in Python, from the notes.
#include "ordering.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace fake {
namespace {

constexpr size_t kAlignment = 64;

struct Note {
  int64_t id;  // negative: released
  int64_t bytes;
  int64_t device;
  int64_t stream;
  double time_us;
};

struct Piece {
  int64_t id;
  size_t bytes;
  Where where;
  bool written = false;
  Use last_write{};
  std::vector<Use> uses;  // the last on each stream
  std::vector<c10::StreamId> recorded;  // by record_stream
};

struct Freed {
  Where where;
  std::vector<Use> uses;
};

// Never destroyed: tensors are released when Python is gone.
auto& guard = *new std::mutex;
auto& notes = *new std::vector<Note>;
auto& pieces = *new std::unordered_map<const void*, Piece>;
auto& freed = *new std::vector<Freed>;
auto& hazards = *new std::vector<std::string>;
int64_t next_id = 1;
int64_t allocations = 0;
int64_t fail_at = -1;
int64_t limit_bytes = int64_t{80} << 30;
int64_t allocated_bytes[kDevices] = {};

double time_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

int64_t rounded(size_t bytes) { return static_cast<int64_t>((bytes + 511) / 512 * 512); }

void release(void* address) {
  const std::lock_guard lock(guard);
  const auto found = pieces.find(address);
  const Piece& piece = found->second;
  notes.push_back({-piece.id, static_cast<int64_t>(piece.bytes), piece.where.device, piece.where.stream, time_us()});
  allocated_bytes[piece.where.device] -= rounded(piece.bytes);
  Freed other{piece.where, {}};
  for (const auto& use : piece.uses) {
    const bool told = std::count(piece.recorded.begin(), piece.recorded.end(), use.stream.second) > 0;
    if (use.stream != key(piece.where) && !told) {
      other.uses.push_back(use);
    }
  }
  if (!other.uses.empty()) {
    freed.push_back(std::move(other));
  }
  pieces.erase(found);
  std::free(address);
}

// Memory that is free again is the next's on its stream, whatever other streams still do with it.
void check_reuse(Where where) {
  for (auto it = freed.begin(); it != freed.end();) {
    if (key(it->where) != key(where)) {
      ++it;
      continue;
    }
    for (const auto& use : it->uses) {
      if (!is_over(use, where)) {
        hazards.push_back("memory is free while stream " + std::to_string(use.stream.second) + " uses it");
      }
    }
    it = freed.erase(it);
  }
}

struct HostMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const auto where = here();
    const c10::Device device(c10::DeviceType::CUDA, where.device);
    if (bytes == 0) {
      return {nullptr, nullptr, &release, device};
    }
    const std::lock_guard lock(guard);
    const bool full = allocated_bytes[where.device] + rounded(bytes) > limit_bytes;
    if (allocations++ == fail_at || full) {
      C10_THROW_ERROR(
          OutOfMemoryError, "CUDA out of memory. Tried to allocate " + std::to_string(bytes) + " bytes. (A simulation.)");
    }
    check_reuse(where);
    void* address = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    TORCH_CHECK(address != nullptr, "the host has no memory left for a device that is not there");
    notes.push_back({next_id, static_cast<int64_t>(bytes), where.device, where.stream, time_us()});
    allocated_bytes[where.device] += rounded(bytes);
    pieces[address] = {next_id++, bytes, where};
    return {address, address, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

HostMemory memory;
const bool is_the_allocator = [] {
  c10::SetAllocator(c10::DeviceType::CUDA, &memory);
  return true;
}();

}  // namespace

void used(const void* address, bool written, const char* by) {
  const auto where = here();
  const std::lock_guard lock(guard);
  const auto found = pieces.find(address);
  if (found == pieces.end()) {
    return;
  }
  Piece& piece = found->second;
  const auto say = [&](const char* what) {
    hazards.push_back(std::string(by) + " on stream " + std::to_string(where.stream) + " does not wait for " + what);
  };
  if (piece.written && !is_over(piece.last_write, where)) {
    say("the kernel that writes what it uses");
  }
  const auto use = now(where);
  if (written) {
    for (const auto& other : piece.uses) {
      if (!is_over(other, where)) {
        say("those that read what it overwrites");
      }
    }
    piece.written = true;
    piece.last_write = use;
  }
  const auto mine = std::find_if(piece.uses.begin(), piece.uses.end(), [&](auto& x) { return x.stream == use.stream; });
  if (mine == piece.uses.end()) {
    piece.uses.push_back(use);
  } else {
    mine->time = use.time;
  }
}

void used_on(const void* address, c10::StreamId stream) {
  const std::lock_guard lock(guard);
  const auto found = pieces.find(address);
  if (found != pieces.end()) {
    found->second.recorded.push_back(stream);
  }
}

extern "C" {

int64_t fake_allocations() { return allocations; }

// The allocation of this number from now on fails, once; negative: none.
void fake_fail_at(int64_t number) {
  const std::lock_guard lock(guard);
  allocations = 0;
  fail_at = number;
}

void fake_limit(int64_t bytes) { limit_bytes = bytes; }

// Moves at most this many notes, five numbers each, to where it is told; returns how many.
int64_t fake_notes(double* to, int64_t most) {
  const std::lock_guard lock(guard);
  const auto count = std::min<int64_t>(most, static_cast<int64_t>(notes.size()));
  for (int64_t number = 0; number < count; ++number) {
    const auto& note = notes[number];
    const double values[] = {
        static_cast<double>(note.id), static_cast<double>(note.bytes), static_cast<double>(note.device),
        static_cast<double>(note.stream), note.time_us};
    std::copy(std::begin(values), std::end(values), to + 5 * number);
  }
  notes.erase(notes.begin(), notes.begin() + count);
  return count;
}

// The next thing that streams do to each other without waiting, or null.
const char* fake_hazard() {
  static std::string said;
  const std::lock_guard lock(guard);
  if (hazards.empty()) {
    return nullptr;
  }
  said = hazards.front();
  hazards.erase(hazards.begin());
  return said.c_str();
}

}  // extern "C"

}  // namespace fake
