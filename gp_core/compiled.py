"""How loops are compiled: one home for the options that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Numba's decorator: machine code kept on disk, run without the interpreter's lock, further `options` as njit's.

    A division by zero gives an infinity or NaN, as in numpy: an exception that leaves compiled code keeps the arrays
    of that call in memory for ever, and a check in front of every division keeps loops from being vectorised.
    """
    decorator: Callable[[Any], Any] = njit(cache=True, nogil=True, error_model="numpy", **options)
    return decorator
