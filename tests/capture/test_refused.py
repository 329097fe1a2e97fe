"""What a schedule cannot run is refused in one sentence, which names the line or the place, and the remedy."""

from __future__ import annotations

import dataclasses
import re
from types import MethodType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn

from explorer.capture import capture
from tests.capture.wide import Body, Make, embedding, sample

REFUSED: dict[str, tuple[Make, list[str]]] = {}


def refused(*words: str) -> Any:
    """Enter a sample that is refused with these words."""

    def enter(make: Make) -> Make:
        REFUSED[make.__name__] = make, list(words)
        return make

    return enter


@refused("depend on the values of tensors", "test_refused.py", "if x.sum() > 0:", "torch.where")
def control_flow():
    def body(_: Any, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = x * 2
        return x

    return sample(body)


@refused("depend on the values of tensors", "int(x.argmax().item())")
def item():
    def body(_: Any, x: torch.Tensor) -> torch.Tensor:
        best = int(x.argmax().item())
        return x * best

    return sample(body)


@refused("depend on the values of tensors", "x[x > 0]", "torch.where(mask, x, 0)")
def boolean_mask():
    return sample(lambda _, x: x[x > 0])


@refused("numbers of selected elements depend on", "rows, columns = torch.where(", "(topk), added by index_add")
def experts():
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        rows, columns = torch.where(x.topk(2).indices == 1)
        return x.index_add(0, rows, m.linear(x[rows]) * x[rows, columns, None])

    return sample(body)


@refused("depend on the values of tensors", "x.nonzero()", "(x * mask).sum() / mask.sum() for a mean")
def nonzero():
    return sample(lambda _, x: x.flatten()[x.nonzero()[:, 0]])


@refused("shapes in aten._ctc_loss.default depend on the values of tensors", "ctc_loss(", "leave it out of what is")
def ctc_loss():
    lengths = (3,), (2,)
    return sample(lambda _, x: F.ctc_loss(x.log_softmax(-1)[:, None], torch.tensor([[1, 2]]), *lengths))


@refused("depend on the values of tensors", "mask.all()", "Without that question the model fails", "torch.ones(5)")
def a_mask_and_a_mistake():
    """PyTorch's libraries leave out questions about values while they are compiled, and then the mistake is met."""

    def body(_: Any, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(3, dtype=torch.bool)
        if not torch.compiler.is_compiling() and not mask.all():
            x = x * 2
        return x + torch.ones(5)

    return sample(body)


@refused("takes the values of a tensor out of PyTorch", "x.detach().numpy()", "compute it with torch")
def numpy_inside():
    return sample(lambda _, x: x * torch.from_numpy(x.detach().numpy() + 1))


@refused("norm is a BatchNorm1d with momentum=None", "give it a momentum")
def batch_norm_cumulative():
    return sample(lambda m, x: m.norm(x), norm=nn.BatchNorm1d(6, momentum=None))


@refused("the values of its lengths at", "rnn.pack_padded_sequence(x, lengths)", "give the layer the padded sequences")
def packed():
    lengths = torch.tensor([5, 3, 2])

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        packed = rnn.pack_padded_sequence(x, lengths)
        return m.rnn(packed)[0].data

    return sample(body, 5, 3, 6, rnn=nn.LSTM(6, 4))


@refused("changes the parameter 'table.weight' in place", "max_norm", "torch.embedding_renorm_")
def embedding_max_norm():
    return embedding(nn.Embedding(5, 6, max_norm=1.0))


@refused("gradient of table.weight is a sparse tensor", "sparse=False")
def embedding_sparse():
    return embedding(nn.Embedding(5, 6, sparse=True))


@refused("changes 'model.calls' from 0 to 1", "register_buffer")
def counter():
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.calls += 1
        return x

    model, batch, loss = sample(body)
    model.calls = 0
    return model, batch, loss


@refused("appends to 'model.history'", "register_buffer")
def history():
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.history.append(len(x))
        return x

    model, batch, loss = sample(body)
    model.history = []
    return model, batch, loss


@refused("stores a tensor as 'model.inner.seen'", "return it instead")
def stored_activation():
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.inner.seen = x.detach()
        return m.inner(x)

    return sample(body, inner=nn.Linear(6, 6))


@refused("stores a tensor as 'model.features[0]'", "return it instead")
def stored_in_a_list():
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.features.append(x)
        return x

    model, batch, loss = sample(body)
    model.features = []
    return model, batch, loss


@refused("stores a tensor as 'model.first'", "register a buffer")
def lazy_state():
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        if m.first is None:
            m.first = m.linear.weight.detach() * 2
        return x @ m.first

    model, batch, loss = sample(body)
    model.first = None
    return model, batch, loss


@refused("assigns to 'model.penalty' a tensor that carries a gradient", "return it instead")
def stored_loss():
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.penalty = x.square().sum()
        return x

    model, batch, loss = sample(body)
    model.penalty = torch.zeros(())
    return model, batch, loss


@refused("add_ changes in place a tensor (6,)", "register it with register_buffer")
def foreign_tensor():
    total = torch.zeros(6)

    def body(_: Any, x: torch.Tensor) -> torch.Tensor:
        total.add_(x.detach().sum(0))
        return x

    return sample(body)


@refused("zero_ changes in place a tensor (3, 4, 6)", "change a copy (.clone())")
def expanded_tensor():
    def body(_: Any, x: torch.Tensor) -> torch.Tensor:
        x.detach().expand(3, *x.shape).zero_()
        return x

    return sample(body)


@refused("linear reads a tensor (6, 6) that needs a gradient", "nn.ModuleList")
def unregistered_module():
    model, batch, loss = sample(lambda m, x: m.layers[0](x))
    model.layers = [nn.Linear(6, 6)]
    return model, batch, loss


@refused("inner is a TorchScript module", "the module that it was made from")
def scripted():
    return sample(lambda m, x: m.inner(x), inner=torch.jit.script(nn.Sequential(nn.Linear(6, 6), nn.ReLU())))


@refused("wrapped in DataParallel", "DataParallel(explorer.apply(model, ...))")
def data_parallel():
    model, batch, loss = sample(lambda _, x: x)
    return nn.DataParallel(model), batch, loss


@refused("forward of this Body was replaced on the object", "prepare the result")
def replaced_forward():
    model, batch, loss = sample(lambda _, x: x)
    model.forward = MethodType(lambda m, x: m.linear(x), model)
    return model, batch, loss


@refused("inner has hooks, which a schedule cannot run", "put what they compute into forward")
def forward_hooks():
    model, batch, loss = sample(lambda m, x: m.inner(x), inner=nn.Linear(6, 6))
    model.inner.register_forward_pre_hook(lambda _, args: (args[0] * 2,))
    model.inner.register_forward_hook(lambda _m, _a, out: out.tanh())
    return model, batch, loss


@refused("inner has hooks, which a schedule cannot run", "put what they compute into forward")
def backward_hook():
    model, batch, loss = sample(lambda m, x: m.inner(x), inner=nn.Linear(6, 6))
    model.inner.register_full_backward_hook(lambda _m, grads, _g: (grads[0] * 0.5,))
    return model, batch, loss


@refused("PyTorch looks at a mask to see whether it is causal", "tgt_is_causal")
def causal_mask_of_a_transformer():
    def function(m, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return m.transformer(x, x, tgt_mask=mask)

    return sample(function, 2, 3, 6, transformer=nn.Transformer(6, 1, 1, 1, 8, batch_first=True))


@refused(
    "within a transform of torch.func",
    "at ",
    "test_refused.py",
    "torch.func.vmap(torch.func.hessian(",
    "torch.autograd",
)
def transform_of_functions():
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.hessian(lambda row: m.linear(row).tanh().sum()))(x)

    return Body(body), torch.randn(4, 6), None


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor


@refused("batch[0] is a Pair with tensors in it", "torch.export.register_dataclass")
def dataclass_batch():
    model = Body(lambda m, pair: m.linear(pair.left + pair.right).mean())
    return model, (Pair(torch.ones(2, 6), torch.ones(2, 6)), torch.zeros(1)), None


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning", "ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_sentence(name: str) -> None:
    torch.manual_seed(0)
    make, words = REFUSED[name]
    model, batch, loss = make()
    before = [dict(vars(x)) for x in model.modules()]
    with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
        capture(model, batch, loss=loss)
    assert [x for x in words if x not in str(caught.value)] == [], str(caught.value)
    assert all(
        dict(vars(x)).keys() == y.keys() and all(vars(x)[k] is v for k, v in y.items())
        for x, y in zip(model.modules(), before, strict=True)
    )
