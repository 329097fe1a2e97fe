"""The zoo of the world: many architectures, shrunk, each captured, solved, trained and measured beside eager mode.

python -m benchmarks.zoo [--only NAME …] [--tier quick] [--json FILE] [--page docs/supported.md]
"""

from __future__ import annotations

from benchmarks.zoo import (
    contrastive,
    convolutional,
    dense_prediction,
    generative,
    hugging_face,
    mobile,
    refused,
    sequences,
    tokens,
)
from benchmarks.zoo.specimen import Specimen

_PARTS = (convolutional, mobile, tokens, dense_prediction, generative, contrastive, sequences, hugging_face, refused)
ZOO: dict[str, Specimen] = {specimen.name: specimen for part in _PARTS for specimen in part.SPECIMENS}
