"""An array that grows by rows: room is doubled when it is full, so that a row costs the same however many there are."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


class Rows(Generic[Scalar]):
    """start: (N, ...) the first rows. What `values` returned stays as it was when more rows come."""

    def __init__(self, start: NDArray[Scalar]) -> None:
        self._room, self._count = start.copy(), len(start)

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> NDArray[Scalar]:
        """(N, ...) all rows, not a copy."""
        return self._room[: self._count]

    def append(self, row: Any) -> None:
        self.extend(np.asarray(row, dtype=self._room.dtype)[None])

    def extend(self, rows: NDArray[Scalar]) -> None:
        end = self._count + len(rows)
        if end > len(self._room):
            room = np.empty((max(2 * end, 16), *self._room.shape[1:]), dtype=self._room.dtype)
            room[: self._count] = self.values
            self._room = room
        self._room[self._count : end] = rows
        self._count = end
