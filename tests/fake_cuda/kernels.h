// Between the device's memory, which lies on the host, and the CPU's kernels.
#pragma once

#include "device.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace fake {

// The same memory as a tensor of the CPU's; and a copy of one in memory of the device.
at::Tensor on_host(const at::Tensor& tensor);
at::Tensor on_device(const at::Tensor& made);

// What computes an operator; without kernels.cpp there are fake tensors alone, and it is never called.
extern void (*kernel)(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace fake
