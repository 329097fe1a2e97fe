// What CUDA's libraries compute and no kernel of the CPU's does by the same name: cuDNN's batch normalisation, attention,
// and dropout as CUDA scales it.
#include "kernels.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include <cmath>

namespace fake {
namespace {

using at::Tensor;

// cuDNN's is PyTorch's own here, with another name.
std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm(
    const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, const std::optional<Tensor>& mean,
    const std::optional<Tensor>& variance, bool training, double momentum, double epsilon) {
  auto [result, saved_mean, saved_scale] =
      at::native_batch_norm(input, weight, bias, mean, variance, training, momentum, epsilon);
  return {result, saved_mean, saved_scale, at::empty({0}, input.options().dtype(at::kByte))};
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_backward(
    const Tensor& input, const Tensor& gradient, const Tensor& weight, const std::optional<Tensor>& mean,
    const std::optional<Tensor>& variance, const std::optional<Tensor>& saved_mean,
    const std::optional<Tensor>& saved_scale, double epsilon, const Tensor& /*reserve*/) {
  return at::native_batch_norm_backward(
      gradient, input, weight, mean, variance, saved_mean, saved_scale, true, epsilon, {true, true, true});
}

// As ATen/native/cuda/Dropout.cu scales, which is not how the CPU's kernel does.
std::tuple<Tensor, Tensor> dropout(const Tensor& input, double probability, std::optional<bool> train) {
  const c10::DeviceGuard guard(input.device());
  launched(here());
  const auto source = on_host(input);
  auto mask = at::ones_like(source, source.options().dtype(at::kBool));
  if (!train.value_or(true) || probability == 0) {
    return {on_device(source.clone()), on_device(mask)};
  }
  mask.bernoulli_(1 - probability);
  const bool wide = source.scalar_type() == at::kDouble;
  const double scale = wide ? 1 / (1 - probability) : double{1.0F / static_cast<float>(1 - probability)};
  const auto made = source.to(wide ? at::kDouble : at::kFloat).mul(mask).mul_(probability == 1 ? 0 : scale);
  return {on_device(made.to(source.scalar_type())), on_device(mask)};
}

struct Weights {
  Tensor probabilities;
  Tensor log_sum;
};

Weights weights_of(const Tensor& query, const Tensor& key, const Tensor& bias, bool causal, double scale) {
  auto scores = at::matmul(query, key.transpose(-2, -1)).mul_(scale);
  if (bias.defined()) {
    scores += bias;
  }
  if (causal) {
    const auto later = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).triu_(1);
    scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
  }
  return {at::softmax(scores, -1), at::logsumexp(scores, -1)};
}

double scale_of(const Tensor& query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

// As the layouts of the memory-efficient kernel are: heads inside of tokens, sums filled up to 32.
Tensor by_token(const Tensor& made) { return made.transpose(1, 2).contiguous().transpose(1, 2); }

std::tuple<Tensor, Tensor, Tensor, Tensor> attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& bias, bool with_sums,
    double dropout, bool causal, std::optional<double> scale) {
  TORCH_CHECK(dropout == 0, "attention on this device drops nothing out");
  const c10::DeviceGuard guard(query.device());
  launched(here());
  const auto q = on_host(query);
  const auto v = on_host(value);
  const auto mask = bias.has_value() && bias->defined() ? on_host(*bias) : Tensor();
  const auto found = weights_of(q, on_host(key), mask, causal, scale_of(q, scale));
  const auto tokens = with_sums ? (q.size(2) + 31) / 32 * 32 : 0;
  auto sums = at::zeros({q.size(0), q.size(1), tokens}, q.options().dtype(at::kFloat));
  if (with_sums) {
    sums.narrow(2, 0, q.size(2)).copy_(found.log_sum);
  }
  const auto none = at::zeros({}, q.options().dtype(at::kLong));
  auto result = on_device(by_token(at::matmul(found.probabilities, v)));
  return {result, on_device(sums), on_device(none), on_device(none)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
    const Tensor& /*result*/, const Tensor& /*sums*/, const Tensor& /*seed*/, const Tensor& /*offset*/,
    double /*dropout*/, std::array<bool, 4> wanted, bool causal, std::optional<double> scale) {
  const c10::DeviceGuard guard(query.device());
  launched(here());
  const auto g = on_host(gradient);
  const auto q = on_host(query);
  const auto k = on_host(key);
  const auto v = on_host(value);
  const auto by = scale_of(q, scale);
  const auto mask = bias.defined() ? on_host(bias) : Tensor();
  const auto p = weights_of(q, k, mask, causal, by).probabilities;
  const auto of_p = at::matmul(g, v.transpose(-2, -1));
  const auto of_scores = p * (of_p - (of_p * p).sum(-1, true));
  const auto placed = [&](const Tensor& x) { return on_device(by_token(x)); };
  auto of_q = placed(at::matmul(of_scores, k).mul_(by));
  auto of_k = placed(at::matmul(of_scores.transpose(-2, -1), q).mul_(by));
  auto of_v = placed(at::matmul(p.transpose(-2, -1), g));
  auto of_bias = wanted[3] && bias.defined() ? on_device(at::sum_to(of_scores, bias.sizes()).contiguous()) : Tensor();
  return {of_q, of_k, of_v, of_bias};
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("native_dropout", &dropout);
  library.impl("cudnn_batch_norm", &batch_norm);
  library.impl("cudnn_batch_norm_backward", &batch_norm_backward);
  library.impl("_scaled_dot_product_efficient_attention", &attention);
  library.impl("_scaled_dot_product_efficient_attention_backward", &attention_backward);
}

}  // namespace

}  // namespace fake
