// Lets a CPU build of PyTorch believe in two CUDA devices: tensors can be on them, autograd changes to them and to their
// streams, and attention takes the kernel of an architecture. Loaded before PyTorch asks for its hooks.
#include "device.h"

#include <ATen/SDPBackend.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cstdlib>
#include <string>

namespace {

using fake::kDevices;
constexpr int64_t kAlignment = 8;

thread_local c10::DeviceIndex current_device = 0;
thread_local c10::StreamId current_streams[kDevices] = {};
std::atomic<c10::StreamId> streams = 0;
std::atomic<int> capturing = 0;

class NoDevice final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device getDevice() const override { return {type(), current_device}; }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_device = device.has_index() ? device.index() : 0;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device device) const override { return of(device, current_streams[index(device)]); }
  c10::Stream getDefaultStream(c10::Device device) const override { return of(device, 0); }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return of(device, fake::new_stream());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return of(device, fake::new_stream());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto before = getStream(stream.device());
    current_streams[index(stream.device())] = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  bool isStreamCapturing(const c10::Stream&) const override { return capturing != 0; }
  void synchronizeStream(const c10::Stream& stream) const override { fake::host_waits_for(where(stream)); }
  void synchronizeDevice(c10::DeviceIndex) const override { fake::host_waits_for_all(); }

  // An event is the number of its last recording, and one.
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    *event = reinterpret_cast<void*>(fake::recorded(where(stream)) + 1);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      fake::waits(where(stream), reinterpret_cast<int64_t>(event) - 1);
    }
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      fake::host_waits(reinterpret_cast<int64_t>(event) - 1);
    }
  }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    fake::record_stream(data, stream);
  }

 private:
  static c10::DeviceIndex index(c10::Device device) { return device.has_index() ? device.index() : current_device; }
  static c10::Stream of(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::CUDA, index(device)), id);
  }
  static fake::Where where(const c10::Stream& stream) { return {index(stream.device()), stream.id()}; }
};

c10::impl::DeviceGuardImplRegistrar guard(c10::DeviceType::CUDA, new NoDevice());

bool prefers_cudnn() {
  const char* capability = std::getenv("FAKE_CAPABILITY");
  return capability != nullptr && std::string(capability) == "9.0";
}

// As ATen/native/transformers/cuda/sdp_utils.cpp decides for training with what bundled models ask of it.
int64_t kernel_of_attention(
    const at::Tensor& query,
    const at::Tensor&,
    const at::Tensor&,
    const std::optional<at::Tensor>& mask,
    double,
    bool,
    std::optional<double>,
    bool) {
  const bool half = query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16;
  const bool learned_bias = mask.has_value() && mask->requires_grad();
  auto kernel = at::SDPBackend::efficient_attention;
  if (query.dim() != 4 || query.size(-1) % kAlignment != 0 || query.scalar_type() == at::kDouble) {
    kernel = at::SDPBackend::math;
  } else if (half && prefers_cudnn() && !learned_bias) {
    kernel = at::SDPBackend::cudnn_attention;
  } else if (half && !mask.has_value()) {
    kernel = at::SDPBackend::flash_attention;
  }
  return static_cast<int64_t>(kernel);
}

const bool attention_is_chosen = [] {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&kernel_of_attention);
  return true;
}();

}  // namespace

namespace fake {

Where here() { return {current_device, current_streams[current_device]}; }
c10::StreamId new_stream() { return ++streams; }
void (*record_stream)(const c10::DataPtr&, const c10::Stream&) = [](const c10::DataPtr& block, const c10::Stream& stream) {
  used_on(block.get(), stream.id());
};

extern "C" {

int64_t fake_current_device() { return current_device; }
void fake_set_device(int64_t device) { current_device = static_cast<c10::DeviceIndex>(device); }
int64_t fake_current_stream(int64_t device) { return current_streams[device]; }
void fake_set_stream(int64_t device, int64_t stream) { current_streams[device] = stream; }
int64_t fake_new_stream() { return new_stream(); }
int64_t fake_record(int64_t device, int64_t stream) {
  return recorded({static_cast<c10::DeviceIndex>(device), stream});
}
void fake_wait(int64_t device, int64_t stream, int64_t event) {
  waits({static_cast<c10::DeviceIndex>(device), stream}, event);
}
void fake_host_waits(int64_t event) { host_waits(event); }
void fake_host_waits_for_all() { host_waits_for_all(); }
void fake_capturing(int64_t whether) { capturing = static_cast<int>(whether); }

}  // extern "C"

}  // namespace fake

namespace at {

// What ATen asks before it takes cuDNN's way through convolutions and normalisation.
struct CUDAHooks : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool hasCuDNN() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
  long versionCuDNN() const override { return 91900; }
  long versionRuntimeCuDNN() const override { return 91900; }
  long versionCuDNNFrontend() const override { return 11800; }
  double batchnormMinEpsilonCuDNN() const override { return 0.0; }
  DeviceIndex current_device() const override { return ::current_device; }
  int getNumGPUs() const override { return kDevices; }
};

REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace at
