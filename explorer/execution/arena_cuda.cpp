// The same on CUDA (arena.h): an allocator around PyTorch's caching one, which does everything else.
//
// A pluggable allocator or a pool of PyTorch's would not do: the first takes the caching allocator's place for good, and
// in the second its best fit, not the plan, says what lies where.
#include "arena.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/version.h>

#define TORCH_AT_LEAST(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::MempoolId_t;

int64_t offset(void* pointer, const Arena& arena) { return static_cast<char*>(pointer) - arena.base(); }

// In whose buffer a block lies; null: in none.
std::shared_ptr<Arena> around(void* pointer) {
  std::lock_guard<std::mutex> lock(guard);
  const auto found = held.find(pointer);
  return found == held.end() || found->second.inner ? nullptr : found->second.arena;
}

struct Allocator final : caching::CUDAAllocator {
  caching::CUDAAllocator* inner = nullptr;

  c10::DataPtr allocate(size_t bytes) override { return answer(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return inner->raw_deleter(); }
  // Libraries take their workspaces like this.
  void* raw_alloc(size_t bytes) override {
    if (bytes == 0 || !is_active) return inner->raw_alloc(bytes);
    c10::DataPtr block = answer(bytes);
    void* pointer = block.get();
    if (block.get_deleter() == release) return block.release_context();
    std::lock_guard<std::mutex> lock(guard);
    held[pointer] = {nullptr, {}, -1, std::move(block)};
    return pointer;
  }
  void raw_delete(void* pointer) override {
    if (!let_go(pointer)) inner->raw_delete(pointer);
  }
  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream other) override {
    const c10::DataPtr* known = &block;
    std::shared_ptr<Arena> arena;
    {
      std::lock_guard<std::mutex> lock(guard);
      const auto found = held.find(block.get());
      if (found != held.end()) {
        Block& its = found->second;
        const bool another = its.on.has_value() && other.unwrap() != *its.on;
        if (its.inner) {
          its.shared |= another;
          known = &its.inner;  // by whose deleter the caching allocator knows its own
        } else {
          arena = its.arena;
          known = &arena->buffer;
          if (another) arena->shared[offset(block.get(), *arena)].push_back(other.unwrap());
        }
      }
    }
    inner->recordStream(*known, other);
  }
  // A block of the buffer is a part of one of the caching allocator's.
  void* getBaseAllocation(void* pointer, size_t* size) override {
    const auto arena = around(pointer);
    return inner->getBaseAllocation(arena ? arena->base() : pointer, size);
  }
  caching::ShareableHandle shareIpcHandle(void* pointer) override {
    const auto arena = around(pointer);
    if (!arena) return inner->shareIpcHandle(pointer);
    caching::ShareableHandle handle = inner->shareIpcHandle(arena->base());
    handle.offset += offset(pointer, *arena);
    return handle;
  }

  // Everything else is the caching allocator's.
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    inner->copy_data(target, source, bytes);
  }
  bool initialized() override { return inner->initialized(); }
  void emptyCache(MempoolId_t pool) override { inner->emptyCache(pool); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    return inner->getDeviceStats(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override { inner->resetAccumulatedStats(device); }
  void resetPeakStats(DeviceIndex device) override { inner->resetPeakStats(device); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override { return inner->getMemoryInfo(device); }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t on) override { return inner->raw_alloc_with_stream(bytes, on); }
  void init(int devices) override { inner->init(devices); }
  double getMemoryFraction(DeviceIndex device) override { return inner->getMemoryFraction(device); }
  void setMemoryFraction(double fraction, DeviceIndex device) override { inner->setMemoryFraction(fraction, device); }
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    return inner->getExpandableSegmentSizes(device);
  }
  void enable(bool value) override { inner->enable(value); }
  bool isEnabled() const override { return inner->isEnabled(); }
  void cacheInfo(DeviceIndex device, size_t* largest) override { inner->cacheInfo(device, largest); }
  caching::SnapshotInfo snapshot(MempoolId_t pool, bool traces) override { return inner->snapshot(pool, traces); }
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) override {
    inner->beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override { inner->endAllocateToPool(device, pool); }
  void releasePool(DeviceIndex device, MempoolId_t pool) override { inner->releasePool(device, pool); }
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override { return inner->getPoolUseCount(device, pool); }
  void createOrIncrefPool(
      DeviceIndex device, MempoolId_t pool, std::shared_ptr<caching::CUDAAllocator> other) override {
    inner->createOrIncrefPool(device, pool, std::move(other));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use) override { inner->setUseOnOOM(device, pool, use); }
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override { inner->setNoSplit(device, pool); }
  bool checkPoolLiveAllocations(
      DeviceIndex device, MempoolId_t pool, const std::unordered_set<void*>& expected) override {
    return inner->checkPoolLiveAllocations(device, pool, expected);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return inner->getIpcDevPtr(std::move(handle)); }
  bool isHistoryEnabled() override { return inner->isHistoryEnabled(); }
  void recordHistory(
      bool enabled,
      caching::CreateContextFn recorder,
      size_t most,
      caching::RecordContext when,
      bool clear,
      const std::vector<std::string>& skipped) override {
    inner->recordHistory(enabled, recorder, most, when, clear, skipped);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& note) override {
    inner->recordAnnotation(note);
  }
  void pushCompileContext(std::string& context) override { inner->pushCompileContext(context); }
  void popCompileContext() override { inner->popCompileContext(); }
  void setUserMetadata(const std::string& metadata) override { inner->setUserMetadata(metadata); }
  std::string getUserMetadata() override { return inner->getUserMetadata(); }
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override {
    inner->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) override {
    inner->attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(DeviceIndex device, DeviceIndex other) override { inner->enablePeerAccess(device, other); }
  cudaError_t memcpyAsync(
      void* target, int to, const void* source, int from, size_t bytes, cudaStream_t on, bool peers) override {
    return inner->memcpyAsync(target, to, source, from, bytes, on, peers);
  }
  std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t pool) override {
    return inner->getCheckpointState(device, pool);
  }
  caching::CheckpointDelta setCheckpointPoolState(
      DeviceIndex device, std::shared_ptr<caching::AllocatorState> state) override {
    return inner->setCheckpointPoolState(device, std::move(state));
  }
  std::string name() override { return inner->name(); }
#if TORCH_AT_LEAST(12)
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer) override {
    return inner->getContextForPointer(pointer);
  }
  void attachOomRejectionObserver(caching::OomRejectionObserver observer) override {
    inner->attachOomRejectionObserver(std::move(observer));
  }
#endif
#if TORCH_AT_LEAST(13)
  void markCaptureBegin(DeviceIndex device) override { inner->markCaptureBegin(device); }
  void markCaptureEnd(DeviceIndex device) override { inner->markCaptureEnd(device); }
  c10::DataPtr allocateWithAddress(size_t bytes, void* at) override { return inner->allocateWithAddress(bytes, at); }
#endif
};

Allocator& allocator = *new Allocator;

void install() {
  kind = c10::DeviceType::CUDA;
  allocator.inner = caching::get();
  plain = allocator.inner;
  caching::allocator.store(&allocator);
  c10::SetAllocator(kind, &allocator, /*priority=*/100);
}

void keep_for(const c10::DataPtr& buffer, c10::Stream other) {
  allocator.inner->recordStream(buffer, c10::cuda::CUDAStream(other));
}

}  // namespace
