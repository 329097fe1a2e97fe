// PyTorch's caching allocator as the product's allocator for buffers sees it, over the memory of memory.cpp. A library of
// its own: it needs CUDA's headers.
#include "device.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/version.h>

#include <atomic>

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::MempoolId_t;

[[noreturn]] void not_here(const char* what) { C10_THROW_ERROR(NotImplementedError, std::string("simulated: ") + what); }

struct Memory final : caching::CUDAAllocator {
  c10::Allocator* host = c10::GetAllocator(c10::DeviceType::CUDA);

  c10::DataPtr allocate(size_t bytes) override { return host->allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return host->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { host->copy_data(to, from, bytes); }
  void* raw_alloc(size_t bytes) override { return host->raw_allocate(bytes); }
  void raw_delete(void* pointer) override { host->raw_deallocate(pointer); }
  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) override {
    // As PyTorch's: blocks whose deleter is not its own are not its concern.
    if (block.get_deleter() == raw_deleter()) fake::used_on(block.get(), stream.id());
  }
  bool initialized() override { return true; }
  bool isEnabled() const override { return true; }
  bool isHistoryEnabled() override { return false; }
  std::string name() override { return "native"; }

  void emptyCache(MempoolId_t) override { not_here("emptyCache"); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex) override { not_here("getDeviceStats"); }
  void resetAccumulatedStats(DeviceIndex) override { not_here("resetAccumulatedStats"); }
  void resetPeakStats(DeviceIndex) override { not_here("resetPeakStats"); }
  void* raw_alloc_with_stream(size_t, cudaStream_t) override { not_here("raw_alloc_with_stream"); }
  void init(int) override { not_here("init"); }
  double getMemoryFraction(DeviceIndex) override { not_here("getMemoryFraction"); }
  void setMemoryFraction(double, DeviceIndex) override { not_here("setMemoryFraction"); }
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex) override { not_here("sizes"); }
  void enable(bool) override { not_here("enable"); }
  void cacheInfo(DeviceIndex, size_t*) override { not_here("cacheInfo"); }
  void* getBaseAllocation(void*, size_t*) override { not_here("getBaseAllocation"); }
  caching::SnapshotInfo snapshot(MempoolId_t, bool) override { not_here("snapshot"); }
  void beginAllocateToPool(DeviceIndex, MempoolId_t, std::function<bool(cudaStream_t)>) override { not_here("pools"); }
  void endAllocateToPool(DeviceIndex, MempoolId_t) override { not_here("pools"); }
  void releasePool(DeviceIndex, MempoolId_t) override { not_here("pools"); }
  caching::ShareableHandle shareIpcHandle(void*) override { not_here("shareIpcHandle"); }
  std::shared_ptr<void> getIpcDevPtr(std::string) override { not_here("getIpcDevPtr"); }
  void recordHistory(
      bool, caching::CreateContextFn, size_t, caching::RecordContext, bool, const std::vector<std::string>&) override {
    not_here("recordHistory");
  }
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver) override { not_here("observers"); }
#if TORCH_VERSION_MINOR > 11
  void attachOomRejectionObserver(caching::OomRejectionObserver) override { not_here("observers"); }
#endif
  void attachAllocatorTraceTracker(caching::AllocatorTraceTracker) override { not_here("trackers"); }
  void enablePeerAccess(DeviceIndex, DeviceIndex) override { not_here("enablePeerAccess"); }
  cudaError_t memcpyAsync(void*, int, const void*, int, size_t, cudaStream_t, bool) override { not_here("memcpyAsync"); }
  std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex, MempoolId_t) override { not_here("state"); }
  caching::CheckpointDelta setCheckpointPoolState(DeviceIndex, std::shared_ptr<caching::AllocatorState>) override {
    not_here("state");
  }
};

}  // namespace

namespace c10::cuda {

void c10_cuda_check_implementation(const int32_t, const char*, const char*, const uint32_t, const bool) {}

namespace CUDACachingAllocator {
std::atomic<CUDAAllocator*> allocator{new Memory};
}

}  // namespace c10::cuda

extern "C" cudaError_t cudaMemGetInfo(size_t*, size_t*) { not_here("cudaMemGetInfo"); }

namespace {

const bool is_asked = [] {
  fake::record_stream = [](const c10::DataPtr& block, const c10::Stream& stream) {
    caching::recordStream(block, c10::cuda::CUDAStream(stream));
  };
  return true;
}();

}  // namespace
