"""Numbers on their way into a JSON trait."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """The same value out of dicts, lists, strings, ints and floats; numpy becomes Python, NaN and infinities None.

    JSON has no word for NaN: a browser refuses the whole message.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool | int):
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple | range | set | frozenset):
        return [plain(one) for one in value]
    return str(value)
