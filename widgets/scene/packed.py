"""Arrays as text that a page takes without parsing numbers."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np


def packed(array: Any) -> Any:
    """An array as plotly's script, and ours, take it: for ``json.dumps(…, default=packed)``.

    Raises:
        TypeError: what is given is no array of numbers.
    """
    if isinstance(array, np.integer):
        return int(array)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        raise TypeError(f"a figure holds {type(array).__name__}, which is not for the page")
    # There are no 64-bit integers in a page's arrays; of fractions no screen shows more than half of the digits.
    kept = array if array.itemsize < 8 else array.astype(np.float32 if array.dtype.kind == "f" else np.float64)
    kept = np.ascontiguousarray(kept.view(np.uint8) if kept.dtype == bool else kept)
    found = {"dtype": kept.dtype.str[1:], "bdata": base64.b64encode(kept.tobytes()).decode()}
    return found if kept.ndim == 1 else found | {"shape": ", ".join(map(str, kept.shape))}


def packed_json(values: Any) -> str:
    """Plain values and arrays as JSON for the page."""
    return json.dumps(values, default=packed, separators=(",", ":"))
