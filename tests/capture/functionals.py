"""Functions of PyTorch in a table: expressions of x, and of y where one is read, by the shape that these have."""

from __future__ import annotations

IMAGES = (2, 4, 8, 8)
ROWS = (2, 4, 8)
VOLUMES = (2, 4, 4, 4, 4)
SQUARES = (3, 8, 8)
FILTERS = (4, 4, 8, 8)

EXPRESSIONS: dict[str, tuple[tuple[int, ...], str]] = {
    "interpolation": (
        IMAGES,
        """
        F.interpolate(x, scale_factor=2, mode="nearest")
        F.interpolate(x, size=(5, 13), mode="nearest-exact")
        F.interpolate(x, size=(5, 13), mode="area")
        F.interpolate(x, scale_factor=2, mode="bilinear")
        F.interpolate(x, size=(5, 13), mode="bilinear", align_corners=True)
        F.interpolate(x, size=(5, 5), mode="bilinear", antialias=True)
        F.interpolate(x, scale_factor=2, mode="bicubic")
        F.interpolate(x, size=(5, 13), mode="bicubic", align_corners=True)
        F.interpolate(x, size=(5, 5), mode="bicubic", antialias=True)
        F.grid_sample(x, y.reshape(2, 8, 8, 4)[..., :2] * 2 - 1, align_corners=False)
        F.grid_sample(x, y.reshape(2, 8, 8, 4)[..., :2] * 2 - 1, "bicubic", "reflection", align_corners=True)
        F.pad(x, (1, 2, 2, 1), mode="reflect")
        F.pad(x, (1, 2, 2, 1), mode="replicate")
        F.pad(x, (1, 2, 2, 1), mode="circular")
        F.pad(x, (-1, 2, -1, 1))
        F.pixel_shuffle(x, 2) + F.pixel_unshuffle(y, 2).reshape(2, 1, 16, 16)
        F.channel_shuffle(x, 2)
        F.fold(F.unfold(x, 3, padding=1), (8, 8), 3, padding=1)
        """,
    ),
    "sequences": (
        ROWS,
        """
        F.interpolate(x, scale_factor=2, mode="linear")
        F.interpolate(x, scale_factor=2)
        F.pad(x, (1, 2), mode="circular")
        F.avg_pool1d(x, 2)
        F.max_pool1d(x, 2)
        F.adaptive_avg_pool1d(x, 3)
        F.adaptive_max_pool1d(x, 3)
        F.dropout1d(x, 0.3)
        F.conv1d(x, y.reshape(4, 4, 4)[:, :, :3], padding="same")
        F.conv1d(x, y.reshape(4, 4, 4)[:, :, :3], padding="valid")
        F.conv_transpose1d(x, y.reshape(4, 4, 4)[:, :, :3], stride=2)
        torch.conv_tbc(x, y.reshape(1, 8, 8), y[0, 0])
        """,
    ),
    "volumes": (
        VOLUMES,
        """
        F.interpolate(x, scale_factor=2, mode="trilinear")
        F.interpolate(x, scale_factor=2)
        F.pad(x, (1, 2, 1, 1, 1, 1), mode="replicate")
        F.avg_pool3d(x, 2)
        F.max_pool3d(x, 2)
        F.adaptive_avg_pool3d(x, 2)
        F.dropout3d(x, 0.3)
        """,
    ),
    "pooling": (
        IMAGES,
        """
        F.avg_pool2d(x, 3, 2, 1)
        F.max_pool2d(x, 3, 2, 1)
        F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)
        F.lp_pool2d(x, 2, 2)
        F.adaptive_max_pool2d(x, 3)
        F.adaptive_avg_pool2d(x, 3)
        F.fractional_max_pool2d(x, 2, output_size=3)
        """,
    ),
    "convolutions": (
        FILTERS,
        """
        F.conv2d(x, y[:4, :4, :3, :4], padding="valid")
        F.conv2d(x, y[:4, :4, :3, :3], padding="same")
        F.conv2d(x, y[:4, :2, :3, :3], stride=2, dilation=2, groups=2)
        F.conv2d(x[0], y[:4, :4, :3, :3])
        F.conv_transpose2d(x, y[:4, :4, :3, :3], stride=2, output_padding=1)
        """,
    ),
    "activations": (
        IMAGES,
        """
        F.relu(x - 0.5)
        F.elu(x - 0.5)
        F.selu(x - 0.5)
        F.celu(x - 0.5)
        F.gelu(x, approximate="tanh")
        F.mish(x)
        F.hardsigmoid(x)
        F.hardtanh(x, 0.2, 0.7)
        F.logsigmoid(x)
        F.softplus(x)
        F.softsign(x)
        F.tanhshrink(x)
        F.softshrink(x, 0.4)
        F.hardshrink(x, 0.4)
        F.rrelu(x - 0.5, training=True)
        F.threshold(x, 0.3, 0.1)
        F.glu(x, 1)
        F.prelu(x - 0.5, y.flatten()[:4])
        F.softmin(x, -1)
        F.gumbel_softmax(x, hard=True, dim=-1)
        F.alpha_dropout(x, 0.3, training=True)
        F.feature_alpha_dropout(x, 0.3, training=True)
        """,
    ),
    "normalisation": (
        IMAGES,
        """
        F.layer_norm(x, (8,))
        F.group_norm(x, 2)
        F.instance_norm(x)
        F.rms_norm(x, (8,))
        F.local_response_norm(x, 2)
        F.normalize(x)
        F.batch_norm(x, torch.zeros(4), torch.ones(4), training=False)
        """,
    ),
    "losses": (
        IMAGES,
        """
        F.cross_entropy(x.flatten(1), torch.tensor([1, 2]), label_smoothing=0.1)
        F.cross_entropy(x.flatten(1), y.flatten(1))
        F.nll_loss(x, torch.ones(2, 8, 8, dtype=torch.long), ignore_index=0)
        F.smooth_l1_loss(x, y)
        F.huber_loss(x, y)
        F.kl_div(x, y, reduction="batchmean")
        F.poisson_nll_loss(x, y)
        F.binary_cross_entropy(x.clamp(0.01, 0.99), y.detach().clamp(0, 1))
        F.binary_cross_entropy_with_logits(x, y, pos_weight=torch.ones(8) * 2)
        F.cosine_embedding_loss(x.flatten(1), y.flatten(1), torch.tensor([1, -1]))
        F.hinge_embedding_loss(x, torch.ones(2, 4, 8, 8))
        F.margin_ranking_loss(x, y, torch.ones(2, 4, 8, 8))
        F.triplet_margin_loss(x.flatten(1), y.flatten(1), x.flatten(1).flip(0))
        F.multi_margin_loss(x.flatten(1), torch.tensor([1, 2]))
        F.multilabel_margin_loss(x.flatten(1), torch.full((2, 256), -1))
        F.pdist(x.flatten(1)) + F.pairwise_distance(x.flatten(1), y.flatten(1))
        torch.cdist(x, y)
        F.cosine_similarity(x, y)
        """,
    ),
    "linear algebra": (
        SQUARES,
        """
        torch.linalg.inv(spd(x))
        torch.linalg.cholesky(spd(x))
        torch.linalg.slogdet(spd(x))[1]
        torch.linalg.solve(spd(x), y)
        torch.linalg.qr(spd(x))[1]
        torch.linalg.svd(spd(x))[1]
        torch.linalg.eigh(spd(x))[0]
        torch.linalg.solve_triangular(spd(x), y, upper=True)
        torch.cholesky_solve(y, torch.linalg.cholesky(spd(x)))
        torch.linalg.lu(spd(x))[1]
        torch.linalg.matrix_exp(x)
        torch.linalg.matrix_power(x, 3)
        torch.linalg.norm(x, "nuc", dim=(1, 2))
        torch.linalg.pinv(x)
        torch.linalg.vector_norm(x, 3, dim=-1)
        torch.linalg.cross(x[..., :3], y[..., :3])
        torch.linalg.multi_dot([x[0], y[0], x[1]])
        torch.baddbmm(x, x, y) + torch.addbmm(x[0], x, y)
        torch.einsum("bij,bkj->bik", x, y)
        torch.kron(x[0], y[0])
        F.bilinear(x, y, y[:1].expand(3, 8, 8))
        """,
    ),
    "transforms": (
        IMAGES,
        """
        torch.fft.fft(x).abs()
        torch.fft.irfft(torch.fft.rfft(x))
        torch.fft.ifft2(torch.fft.fft2(x) * 2).real
        torch.fft.irfftn(torch.fft.rfftn(x))
        torch.fft.fftshift(torch.fft.hfft(x))
        torch.stft(x.reshape(8, 64), 16, window=torch.hann_window(16), return_complex=True).abs()
        torch.view_as_real(torch.view_as_complex(x.reshape(2, 4, 8, 4, 2)) * 2)
        torch.polar(x, y).real
        (torch.complex(x, y).conj() * torch.complex(y, x)).imag
        """,
    ),
    "reductions": (
        IMAGES,
        """
        x.std(-1) + x.var(-1) + x.logsumexp(-1)
        x.amax(-1) + x.amin(-1) + x.norm(dim=-1)
        x.cumprod(-1) + x.logcumsumexp(-1) + x.cummax(-1)[0]
        x.median(-1)[0] + x.kthvalue(2)[0] + x.mode()[0]
        x.sort(-1)[0] + torch.msort(x)
        x.topk(3)[0]
        x.quantile(0.3, -1)
        torch.trapezoid(x) + torch.logaddexp(x, y).sum(-1)
        x.renorm(2, 0, 1) + torch.dist(x, y)
        x * x.count_nonzero(-1).unsqueeze(-1)
        """,
    ),
    "indexing": (
        IMAGES,
        """
        x[:, torch.tensor([0, 2, 1])]
        torch.index_put(x, (torch.tensor([0, 1, 1]),), x[:1].expand(3, 4, 8, 8), accumulate=True)
        x.index_select(1, torch.tensor([0, 2, 1])).index_fill(1, torch.tensor([0]), 0.5)
        x.index_add(1, torch.tensor([0, 2, 1]), y[:, :3]).index_copy(1, torch.tensor([0]), y[:, 1:2])
        x.gather(-1, torch.zeros(2, 4, 8, 3, dtype=torch.long))
        x.scatter_add(-1, torch.zeros(2, 4, 8, 8, dtype=torch.long), y)
        x.scatter_reduce(-1, torch.zeros(2, 4, 8, 8, dtype=torch.long), y, "amax")
        x.masked_fill(x > 0.5, 0.0).masked_scatter(x > 0.7, y)
        torch.where(x > 0.5, x, y)
        x.take(torch.tensor([0, 2, 1]))
        x.roll(1, -1) + x.flip(-1) + x.rot90(1, (2, 3)) + x.tril()
        torch.diag_embed(x.diagonal(dim1=-2, dim2=-1))
        x.repeat_interleave(2, 1) + x.repeat(1, 2, 1, 1)
        x.repeat_interleave(torch.tensor([1, 2, 1, 3]), 1, output_size=7)
        x.unfold(-1, 3, 1)
        x.as_strided((2, 3), (4, 1))
        x * F.one_hot(torch.tensor([0, 1, 2, 3, 4, 5, 6, 7]), 8)
        x * torch.bucketize(x, torch.tensor([0.2, 0.5]))
        F.embedding_bag(torch.tensor([[0, 2, 1], [3, 1, 1]]), x[0, 0])
        F.embedding(torch.tensor([[0, 2, 1], [3, 1, 1]]), x[0, 0], padding_idx=1, scale_grad_by_freq=True)
        """,
    ),
    "elementwise": (
        IMAGES,
        """
        x.acos() + x.atanh() + x.erfinv() + x.lgamma() + x.digamma()
        x.sinc() + x.logit() + x.i0() + x.frac() + x.expm1()
        torch.special.log_ndtr(x) + torch.special.erfcx(x) + torch.special.i1e(x)
        torch.atan2(x, y) + torch.hypot(x, y) + torch.fmod(x, y) + torch.remainder(x, y)
        torch.maximum(x, y) + torch.fmin(x, y) + torch.lerp(x, y, 0.3)
        torch.copysign(x, y)
        x.sgn() * y
        x.round() + x.floor()
        x.clamp(y * 0.5, y)
        torch.addcmul(x, x, y, value=0.3) + torch.addcdiv(x, x, y, value=0.3)
        torch.xlogy(x, y) + torch.pow(x, y) + torch.ldexp(x, y)
        torch.mvlgamma(x + 2, 2) + torch.polygamma(1, x)
        """,
    ),
    "chance": (
        IMAGES,
        """
        x * torch.rand_like(x) + torch.randn(8) * y
        x * torch.bernoulli(x.detach().clamp(0, 1)) + torch.poisson(y.detach().abs()) * y
        x[:, torch.randperm(4)] * torch.randint(0, 5, (8,))
        x * torch.multinomial(x.detach().abs()[0, 0], 8)
        x * torch.normal(0.0, 1.0, (8,)) + torch.normal(x.detach(), 1.0)
        x * torch.empty(8).normal_() + torch.empty(8).uniform_() * torch.empty(8).bernoulli_(0.3)
        x * torch.empty(8).exponential_() + torch.empty(8).geometric_(0.4) + torch.empty(8).log_normal_()
        F.scaled_dot_product_attention(x, y, x, dropout_p=0.1)
        torch.distributions.Normal(x, y.exp()).rsample() + torch.distributions.Gamma(x.exp(), y.exp()).rsample()
        torch.distributions.Dirichlet(x.exp()).rsample() + torch.distributions.Beta(x.exp(), y.exp()).rsample()
        torch.distributions.Normal(x, y.exp()).log_prob(y)
        torch.distributions.Categorical(logits=x).entropy()
        """,
    ),
    "attention": (
        IMAGES,
        """
        F.scaled_dot_product_attention(x, y, x)
        F.scaled_dot_product_attention(x, y, x, is_causal=True)
        F.scaled_dot_product_attention(x, y, x, attn_mask=torch.ones(8, 8).tril().bool())
        F.scaled_dot_product_attention(x, y[:, :2], x[:, :2], enable_gqa=True)
        """,
    ),
}
