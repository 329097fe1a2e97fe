// Lets a CPU build of PyTorch believe in two CUDA devices: tensors can be on them, autograd changes to them and to their
// streams, and attention takes the kernel of an architecture. Loaded before PyTorch asks for its hooks.
#include "device.h"
#include "kernels.h"

#include <ATen/SDPBackend.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/version.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace {

using fake::kDevices;

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
  bool isStreamCapturing(const c10::Stream&) const { return capturing != 0; }  // torch 2.11 does not ask
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

// Of the device, as "9.0" says it.
struct Capability {
  int major = 8;
  int minor = 0;

  bool between(std::pair<int, int> least, std::pair<int, int> most) const {
    return least <= std::pair(major, minor) && std::pair(major, minor) <= most;
  }
};

Capability capability() {
  Capability found;
  const char* told = std::getenv("FAKE_CAPABILITY");
  if (told != nullptr) {
    std::sscanf(told, "%d.%d", &found.major, &found.minor);
  }
  return found;
}

// As ATen/native/transformers/cuda/sdp_utils.cpp decides; what it shares with the CPU is asked of PyTorch itself.
class Attention {
 public:
  explicit Attention(const sdp::sdp_params& params) : params_(params), device_(capability()) {
    const auto dtype = params.query.scalar_type();
    const bool same = params.key.scalar_type() == dtype && params.value.scalar_type() == dtype;
    half_ = same && (dtype == at::kHalf || (dtype == at::kBFloat16 && device_.major >= 8));
    single_ = same && dtype == at::kFloat;
  }

  at::SDPBackend kernel() const {
    if (!sdp::check_tensor_shapes(params_, false) || !sdp::check_nonzero_sequence_lengths_dense(params_, false)) {
      return at::SDPBackend::math;
    }
    if ((device_.major == 9 || device_.major == 10) && cudnn()) {
      return at::SDPBackend::cudnn_attention;
    }
    if (flash()) {
      return at::SDPBackend::flash_attention;
    }
    return efficient() ? at::SDPBackend::efficient_attention : at::SDPBackend::math;
  }

 private:
  int64_t width() const { return params_.query.size(-1); }
  int64_t width_of_values() const { return params_.value.size(-1); }

  bool cudnn() const {
    const double sixteenths = params_.dropout * 16;
    const bool drops_out = TORCH_VERSION_MINOR < 12 || sixteenths == static_cast<int64_t>(sixteenths);
    const bool wide = width() == 192 && width_of_values() == 128;
    return half_ && at::globalContext().userEnabledCuDNNSDP() && drops_out &&
        sdp::check_attn_mask_shape(params_, false) &&
        sdp::check_last_dim_stride_equals_1_dense<true>(params_, false) &&
        sdp::check_batch_size_and_num_heads_dense<true, false>(params_, false) && width() % 8 == 0 &&
        width_of_values() % 8 == 0 && (wide || (width() <= 128 && width_of_values() <= 128)) &&
        params_.key.size(2) != 1 && (params_.dropout == 0 || params_.query.size(2) != 1);
  }

  bool flash() const {
    const bool small = device_.between({8, 6}, {8, 9}) || device_.between({12, 0}, {12, 1});
    const bool limited = small && sdp::input_requires_grad(params_);
    return half_ && device_.major >= 8 && sdp::check_runtime_disabled_flash(params_, false) &&
        sdp::check_for_attn_mask(params_, false) && width() <= 256 && params_.key.size(-1) == width() &&
        width_of_values() == width() && (!limited || width() <= 192 || (params_.dropout == 0 && width() > 224)) &&
        (!params_.is_causal || params_.query.size(2) == params_.key.size(2)) &&
        sdp::check_batch_size_and_num_heads_dense<true>(params_, false) &&
        sdp::check_last_dim_stride_equals_1_dense<true>(params_, false);
  }

  bool efficient() const {
    const int64_t bytes = params_.query.element_size();
    const bool by_tensor_cores = device_.major >= 8 || (device_.major == 7 && half_);
    const int64_t alignment = by_tensor_cores ? 16 / bytes : 1;
    const auto aligned = [&](const at::Tensor& x) {
      return device_.major < 8 || x.storage_offset() % alignment == 0;
    };
    return (half_ || single_) && sdp::check_runtime_disabled_mem_efficient(params_, false) &&
        params_.key.size(-1) == width() && width() % alignment == 0 && width_of_values() % alignment == 0 &&
        aligned(params_.query) && aligned(params_.key) && aligned(params_.value) &&
        sdp::check_last_dim_stride_equals_1_dense<false>(params_, false) &&
        sdp::check_batch_size_and_num_heads_dense<false>(params_, false);
  }

  const sdp::sdp_params& params_;
  Capability device_;
  bool half_ = false;
  bool single_ = false;
};

int64_t kernel_of_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double dropout,
    bool is_causal,
    std::optional<double>,
    bool enable_gqa) {
  const sdp::sdp_params params{query, key, value, mask, dropout, is_causal, enable_gqa};
  return static_cast<int64_t>(Attention(params).kernel());
}

const bool attention_is_chosen = [] {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&kernel_of_attention);
  return true;
}();

// Otherwise PyTorch would make them of others, which a GPU does not, since it has kernels of its own.
void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) { fake::kernel(op, stack); }

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  for (const char* name : {"silu_backward", "mish_backward"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run>());
  }
}

}  // namespace

namespace fake {

void (*kernel)(const c10::OperatorHandle&, torch::jit::Stack*) = [](const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK(false, op.schema().name(), " has no values on this device");
};

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
