// Lets a CPU build of PyTorch believe in two CUDA devices: fake tensors can be on them, autograd changes to them, and
// attention takes the kernel of an architecture. Nothing is computed. Loaded before PyTorch asks for its hooks.
#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <string>

namespace {

constexpr c10::DeviceIndex kDevices = 2;
constexpr int64_t kAlignment = 8;

thread_local c10::DeviceIndex current_device = 0;

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

  // One stream for each device, on which nothing ever runs.
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
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
  if (query.dim() != 4 || query.size(-1) % kAlignment != 0) {
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
