"""Layers with parameters, and what is most often between them."""

from __future__ import annotations

from tests.fuzz.grammar.rules import anything, family, image, rows, sequence

LAYERS = (
    family(
        "linear",
        6,
        rows,
        ("{r} = self.linear_{n}({x})", "self.linear_{n} = nn.Linear({L}, {o})"),
        ("{r} = self.linear_{m}({x})", "self.linear_{n} = nn.Linear({L}, {L})"),
        ("{r} = self.linear_{n}({x})", "self.linear_{n} = nn.Linear({L}, {o}, bias=False)"),
        ("{r} = {x} @ self.weight_{n}", "self.weight_{n} = nn.Parameter(torch.randn({L}, {o}))"),
        ("{r} = F.linear({x}, self.weight_{n}.t())", "self.weight_{n} = nn.Parameter(torch.randn({L}, {o}))"),
        (
            "{r} = self.block_{n}({x})",
            "self.block_{n} = nn.Sequential(nn.Linear({L}, {o}), nn.ReLU(inplace=True), nn.Dropout({p}))",
        ),
        (
            "{r} = self.block_{n}({x}) + {x}",
            "self.block_{n} = nn.Sequential(nn.LayerNorm({L}), nn.Linear({L}, 8), nn.GELU(), nn.Linear(8, {L}))",
        ),
        (
            "{r} = self.wide_{n}({x}.flatten(0, -2).repeat(70, 1)).mean(0)",
            "self.wide_{n} = nn.Sequential(nn.Linear({L}, 64), nn.GELU(), nn.Dropout({p}), nn.Linear(64, {o}))",
        ),
        (
            "{r} = self.narrow_{n}(F.silu(self.gate_{n}({x})) * self.wide_{n}({x})) + {x}",
            "self.gate_{n} = nn.Linear({L}, 64, bias=False)",
            "self.wide_{n} = nn.Linear({L}, 64)",
            "self.narrow_{n} = nn.Linear(64, {L})",
        ),
        (
            "{r} = F.linear(F.relu(F.linear({x}, self.tied_{n})), self.tied_{n}.t())",
            "self.tied_{n} = nn.Parameter(torch.randn({o}, {L}))",
        ),
        (
            "{r} = self.second_{n}(torch.tanh(self.first_{n}({x})))",
            "self.first_{n} = nn.Linear({L}, {L})",
            "self.second_{n} = nn.Linear({L}, {L})",
            "self.second_{n}.weight = self.first_{n}.weight",
        ),
    ),
    family(
        "convolution",
        6,
        image,
        ("{r} = self.conv_{n}({x})", "self.conv_{n} = nn.Conv2d({C}, {o}, 3, padding=1)"),
        ("{r} = self.conv_{n}({x})", "self.conv_{n} = nn.Conv2d({C}, {o}, 1, bias=False)"),
        ("{r} = self.conv_{n}({x})", "self.conv_{n} = nn.Conv2d({C}, {C}, 3, padding=1, groups={C})"),
        ("{r} = self.conv_{n}({x})", "self.conv_{n} = nn.Conv2d({C}, {o}, 2, stride=2)"),
        ("{r} = self.conv_{n}({x})", "self.conv_{n} = nn.Conv2d({C}, {o}, 3, padding=1, padding_mode='circular')"),
        ("{r} = self.conv_{n}({x})", "self.conv_{n} = nn.ConvTranspose2d({C}, {o}, 2, stride=2)"),
        (
            "{r} = self.block_{n}({x})",
            "self.block_{n} = nn.Sequential(nn.Conv2d({C}, {C}, 1), nn.BatchNorm2d({C}), nn.ReLU(inplace=True))",
        ),
        (
            "{r} = self.block_{n}({x}) + {x}",
            "self.block_{n} = nn.Sequential(nn.BatchNorm2d({C}), nn.ReLU(inplace=True), nn.Conv2d({C}, {C}, 1))",
        ),
    ),
    family(
        "convolution of sequences",
        1,
        sequence,
        ("{r} = self.conv_{n}({x})", "self.conv_{n} = nn.Conv1d({C}, {o}, 3, padding=1)"),
        (
            "{r} = self.conv_{n}({x}.transpose(1, 2)).transpose(1, 2)",
            "self.conv_{n} = nn.Conv1d({L}, {o}, 3, padding='same')",
        ),
    ),
    family(
        "normalisation of images",
        4,
        image,
        ("{r} = self.norm_{n}({x})", "self.norm_{n} = nn.BatchNorm2d({C})"),
        ("{r} = self.norm_{n}({x})", "self.norm_{n} = nn.BatchNorm2d({C}, affine=False)"),
        ("{r} = self.norm_{n}({x})", "self.norm_{n} = nn.BatchNorm2d({C}, track_running_stats=False)"),
        ("{r} = self.norm_{n}({x})", "self.norm_{n} = nn.BatchNorm2d({C}, momentum=None)"),
        ("{r} = self.norm_{n}({x})", "self.norm_{n} = nn.BatchNorm2d({C}).eval()"),
        ("{r} = self.norm_{n}({x})", "self.norm_{n} = nn.GroupNorm(2, {C})"),
        ("{r} = self.norm_{n}({x})", "self.norm_{n} = nn.InstanceNorm2d({C})"),
        ("{r} = self.norm_{n}({x})", "self.norm_{n} = nn.InstanceNorm2d({C}, affine=True, track_running_stats=True)"),
        (
            "{r} = self.norm_{n}({x}) + self.norm_{n}({x} * {f})",
            "self.norm_{n} = nn.BatchNorm2d({C})",
        ),
    ),
    family(
        "normalisation",
        4,
        rows,
        ("{r} = self.norm_{n}({x})", "self.norm_{n} = nn.LayerNorm({L})"),
        ("{r} = self.norm_{n}({x})", "self.norm_{n} = nn.LayerNorm({L}, elementwise_affine=False)"),
        ("{r} = self.norm_{n}({x})", "self.norm_{n} = nn.RMSNorm({L})"),
        ("{r} = self.norm_{n}({x})", "self.norm_{n} = nn.BatchNorm1d({C})"),
        ("{r} = self.norm_{m}({x})", "self.norm_{n} = nn.LayerNorm({L})"),
        "{r} = F.normalize({x}, dim={d})",
        "{r} = {x} / ({x}.norm(dim={d}, keepdim=True) + 1e-3)",
        "{r} = F.layer_norm({x}, ({L},))",
        "{r} = F.local_response_norm({x}, 2)",
    ),
    family(
        "pooling",
        3,
        image,
        "{r} = F.max_pool2d({x}, 2)",
        "{r} = F.max_pool2d({x}, 3, stride=1, padding=1)",
        "{r} = F.avg_pool2d({x}, 2)",
        "{r} = F.adaptive_avg_pool2d({x}, 1)",
        "{r} = F.adaptive_max_pool2d({x}, 2)",
        "{r} = F.interpolate({x}, scale_factor=2, mode='nearest')",
        "{r} = F.interpolate({x}, size=(4, 4), mode='bilinear')",
        "{r} = F.pad({x}, (1, 1, 0, 1))",
        "{r} = F.pad({x}, (1, 1, 1, 1), mode='reflect')",
        "{r} = F.pixel_shuffle({x}, 2)",
        "{r} = F.pixel_unshuffle({x}, 2)",
        "{r} = {x}.to(memory_format=torch.channels_last)",
        "{r} = {x}.contiguous(memory_format=torch.channels_last)",
    ),
    family(
        "embedding",
        2,
        anything,
        ("{r} = self.embedding_{n}({i} % 8)", "self.embedding_{n} = nn.Embedding(8, {o})"),
        ("{r} = self.embedding_{n}({i} % 8)", "self.embedding_{n} = nn.Embedding(8, {o}, padding_idx=1)"),
        ("{r} = self.embedding_{n}.weight[{i} % 8]", "self.embedding_{n} = nn.Embedding(8, {o})"),
        (
            "{r} = F.linear(self.embedding_{n}({i} % 8), self.embedding_{n}.weight)",
            "self.embedding_{n} = nn.Embedding(8, {o})",
        ),
        ("{r} = self.bag_{n}({i} % 8)", "self.bag_{n} = nn.EmbeddingBag(8, {o}, mode='mean')"),
        "{r} = F.one_hot({i} % 8, 8).to({x}.dtype)",
    ),
    family(
        "attention",
        3,
        sequence,
        "{r} = F.scaled_dot_product_attention({x}, {x}, {x})",
        "{r} = F.scaled_dot_product_attention({x}, {s}, {x}, is_causal=True)",
        "{r} = F.scaled_dot_product_attention({x}, {x}, {s}, dropout_p={p})",
        "{r} = F.scaled_dot_product_attention({x}[:, None], {x}[:, None], {s}[:, None])[:, 0]",
        (
            "{r}q, {r}k, {r}w = self.qkv_{n}({x}).chunk(3, -1)\n{r} = F.scaled_dot_product_attention({r}q, {r}k, {r}w)",
            "self.qkv_{n} = nn.Linear({L}, 12)",
        ),
        (
            "{r}, {r}w = self.attention_{n}({x}, {x}, {s})",
            "self.attention_{n} = nn.MultiheadAttention({L}, 2, dropout={p}, batch_first=True)",
        ),
        "{r} = torch.softmax({x} @ {s}.transpose(1, 2), -1) @ {x}",
        (
            "{r}m = torch.ones({C}, {C}).triu(1).bool()\n"
            "{r} = torch.softmax(({x} @ {x}.mT).masked_fill({r}m, -torch.inf), -1) @ {x}"
        ),
        (
            "{r} = self.layer_{n}({x})",
            "self.layer_{n} = nn.TransformerEncoderLayer({L}, 2, 8, dropout={p}, batch_first=True)",
        ),
    ),
    family(
        "recurrence",
        1,
        sequence,
        (
            (
                "{r} = torch.zeros_like({x}[:, 0])\n"
                "for step in range({C}):\n    {r} = torch.tanh(self.cell_{n}({r}) + {x}[:, step])"
            ),
            "self.cell_{n} = nn.Linear({L}, {L})",
        ),
        "{r} = []\nfor v{n}t in {x}.unbind(1):\n    {r}.append(v{n}t * {f})\n{r} = torch.stack({r}, 1)",
        (
            "{r} = torch.zeros_like({x})\nfor step in range({C}):\n    {r}[:, step] = self.cell_{n}({x}[:, step])",
            "self.cell_{n} = nn.Linear({L}, {L})",
        ),
    ),
)
