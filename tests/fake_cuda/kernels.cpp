// What the device computes: everything that PyTorch's CPU kernels can, on the memory of its tensors as it lies on the
// host. Every call is a kernel of the current stream; results are allocated on the device, workspaces of libraries too.
#include "kernels.h"

#include <ATen/ATen.h>
#include <ATen/native/Copy.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorIterator.h>
#include <torch/library.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>

namespace fake {

using at::Tensor;

Tensor on_host(const Tensor& tensor) {
  const auto& storage = tensor.storage();
  c10::DataPtr data(const_cast<void*>(storage.data()), c10::Device(c10::DeviceType::CPU));
  c10::Storage same(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data), nullptr, false);
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(same), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  made._set_conj(tensor.is_conj());
  made._set_neg(tensor.is_neg());
  return made;
}

Tensor on_device(const Tensor& made) {
  auto result = at::empty_strided(made.sizes(), made.strides(), made.options().device(c10::DeviceType::CUDA));
  const auto bytes = result.storage().nbytes();
  if (bytes > 0) {
    std::memcpy(result.mutable_data_ptr(), made.const_data_ptr(), bytes);
    used(result.storage().data(), true, "a result");
  }
  return result;
}

namespace {

using torch::jit::Stack;

// As PyTorch's default before Hopper; cuDNN's depends on the plan: something that follows the size of the call.
constexpr size_t kCublasBytes = 8519680;
constexpr size_t kLeastConvolutionBytes = 3 * (size_t{1} << 20) + 5;

const std::set<std::string> kProducts = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"};
const std::set<std::string> kConvolutions = {"aten::convolution", "aten::convolution_backward"};

// Never destroyed: the allocator would be gone.
auto& guard = *new std::mutex;
auto& handles = *new std::map<std::tuple<std::thread::id, c10::DeviceIndex, c10::StreamId>, c10::DataPtr>;

void take_handle() {
  const auto where = here();
  const std::lock_guard lock(guard);
  auto& workspace = handles[{std::this_thread::get_id(), where.device, where.stream}];
  if (!workspace) {
    workspace = c10::GetAllocator(c10::DeviceType::CUDA)->allocate(kCublasBytes);
  }
}

// The arguments of one call, as the CPU's kernels take them.
class Call {
 public:
  explicit Call(const c10::OperatorHandle& op) : schema_(op.schema()) {}

  c10::IValue argument(size_t number, const c10::IValue& value) {
    const auto* alias = schema_.arguments()[number].alias_info();
    const bool written = alias != nullptr && alias->isWrite();
    if (value.isTensor()) {
      return tensor(value.toTensor(), written);
    }
    if (value.isTensorList()) {
      c10::List<Tensor> made;
      for (const Tensor& x : value.toTensorVector()) {
        made.push_back(tensor(x, written));
      }
      return made;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> made;
      for (const std::optional<Tensor>& x : value.toOptionalTensorVector()) {
        made.push_back(x.has_value() ? std::optional<Tensor>(tensor(*x, false)) : x);
      }
      return made;
    }
    if (value.isDevice()) {
      at(value.toDevice());
      return c10::Device(c10::DeviceType::CPU);
    }
    return value;
  }

  c10::IValue result(const c10::IValue& value) {
    if (value.isTensor()) {
      return back(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<Tensor> made;
      for (const Tensor& x : value.toTensorVector()) {
        made.push_back(back(x));
      }
      return made;
    }
    return value;
  }

  // Copies apart, only what selects elements may lie elsewhere, and what is a number.
  std::optional<c10::Device> device() const {
    const bool selects = schema_.name().find("index") != std::string::npos;
    TORCH_CHECK(
        selects || !elsewhere_ || given_.empty(),
        "Expected all tensors to be on the same device, in ", schema_.name());
    return device_;
  }

  // Results that had no memory, and that the kernel has given some.
  void grow() {
    for (auto& [theirs, mine] : grown_) {
      if (mine.numel() > 0) {
        at::native::resize_impl_cpu_(theirs.unsafeGetTensorImpl(), mine.sizes(), mine.strides());
        theirs.copy_(mine);
      } else {
        theirs.unsafeGetTensorImpl()->set_sizes_and_strides(mine.sizes(), mine.strides());
      }
    }
  }

  void note_uses() const {
    for (const auto& [storage, written] : storages_) {
      used(storage, written, schema_.name().c_str());
    }
  }

 private:
  Tensor tensor(const Tensor& given, bool written) {
    if (!given.defined() || !given.is_cuda()) {
      elsewhere_ |= given.defined() && given.dim() > 0;
      return given;
    }
    const auto found = given_.find(given.unsafeGetTensorImpl());
    if (found != given_.end()) {
      return found->second;
    }
    Tensor made;
    if (written && given.numel() == 0) {
      made = at::empty(given.sizes(), given.options().device(c10::DeviceType::CPU));
      grown_.emplace_back(given, made);
    } else {
      made = on_host(given);
    }
    given_[given.unsafeGetTensorImpl()] = made;
    originals_[made.unsafeGetTensorImpl()] = given;
    at(given.device());
    if (given.storage().data() != nullptr) {
      storages_[given.storage().data()] |= written;
    }
    return made;
  }

  Tensor back(const Tensor& made) {
    if (!made.defined()) {
      return made;
    }
    const auto found = originals_.find(made.unsafeGetTensorImpl());
    if (found != originals_.end()) {
      return found->second;
    }
    for (const auto& [theirs, original] : originals_) {
      TORCH_CHECK(
          made.storage().data() == nullptr || made.storage().data() != original.storage().data(),
          schema_.name(), " returns a view, which this device does not know");
    }
    return on_device(made);
  }

  void at(c10::Device device) {
    TORCH_CHECK(
        !device_.has_value() || !device.has_index() || *device_ == device,
        "Expected all tensors to be on the same device, but found ", *device_, " and ", device, " in ", schema_.name());
    device_ = device;
  }

  const c10::FunctionSchema& schema_;
  bool elsewhere_ = false;
  std::optional<c10::Device> device_;
  std::unordered_map<c10::TensorImpl*, Tensor> given_;
  std::unordered_map<c10::TensorImpl*, Tensor> originals_;
  std::vector<std::pair<Tensor, Tensor>> grown_;
  std::map<const void*, bool> storages_;
};

void compute(const c10::OperatorHandle& op, Stack* stack) {
  const auto& name = op.schema().name();
  const auto count = op.schema().arguments().size();
  const auto begin = stack->size() - count;
  Call call(op);
  size_t largest = 0;
  for (size_t number = 0; number < count; ++number) {
    auto& value = (*stack)[begin + number];
    if (value.isTensor() && value.toTensor().defined()) {
      largest = std::max(largest, value.toTensor().nbytes());
    }
    value = call.argument(number, value);
  }
  const c10::OptionalDeviceGuard guard(call.device());
  if (kProducts.count(name) > 0) {
    take_handle();
  }
  c10::DataPtr workspace;
  if (kConvolutions.count(name) > 0) {
    try {
      workspace = c10::GetAllocator(c10::DeviceType::CUDA)->allocate(kLeastConvolutionBytes + largest / 2);
    } catch (const c10::OutOfMemoryError&) {
      TORCH_CHECK(false, "GET was unable to find an engine to execute this computation");  // as PyTorch says it
    }
  }
  launched(here());
  call.note_uses();
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  call.grow();
  const auto results = op.schema().returns().size();
  bool tells = results > 0;
  for (size_t number = stack->size() - results; number < stack->size(); ++number) {
    tells &= !(*stack)[number].isTensor() && !(*stack)[number].isTensorList();
    (*stack)[number] = call.result((*stack)[number]);
  }
  if (tells) {
    host_waits_for(here());  // for a number
  }
}

void copy(at::TensorIterator& iterator, bool non_blocking) {
  const auto& to = iterator.tensor(0);
  const auto& from = iterator.tensor(1);
  const c10::DeviceGuard guard(to.is_cuda() ? to.device() : from.device());
  launched(here());
  for (const auto* tensor : {&to, &from}) {
    if (tensor->is_cuda()) {
      used(tensor->storage().data(), tensor == &to, "a copy");
    }
  }
  const at::NoGradGuard no_grad;
  (to.is_cuda() ? on_host(to) : to).copy_(from.is_cuda() ? on_host(from) : from);
  if (!non_blocking && !(to.is_cuda() && from.is_cuda())) {
    host_waits_for(here());
  }
}

const bool copies = [] {
  at::native::copy_stub.set_cuda_dispatch_ptr(&copy);
  return true;
}();

Tensor empty(
    at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device,
    std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  const c10::DispatchKeySet keys(c10::DispatchKey::CUDA);
  auto* allocator = c10::GetAllocator(c10::DeviceType::CUDA);
  return at::detail::empty_generic(size, allocator, keys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(
    at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  const c10::DispatchKeySet keys(c10::DispatchKey::CUDA);
  auto* allocator = c10::GetAllocator(c10::DeviceType::CUDA);
  return at::detail::empty_strided_generic(size, stride, allocator, keys, c10::dtype_or_default(dtype));
}

const Tensor& resize(const Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  at::native::resize_impl_cpu_(self.unsafeGetTensorImpl(), size, std::nullopt);
  if (format.has_value()) {
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return self;
}

const bool computes = [] {
  kernel = &compute;
  return true;
}();

void is_used_on(Tensor& self, at::Stream stream) { record_stream(self.storage().data_ptr(), stream); }

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  // Otherwise PyTorch would take its way through cuDNN's own operators.
  library.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&compute>());
  library.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&compute>());
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("resize_", &resize);
  library.impl("record_stream", &is_used_on);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  library.impl("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, at::Storage)>(&at::native::set_));
  library.impl("set_.source_Tensor", &at::native::set_tensor_);
}

}  // namespace

// What libraries keep is given back.
extern "C" void fake_forget_handles() {
  const std::lock_guard lock(guard);
  handles.clear();
}

}  // namespace fake
