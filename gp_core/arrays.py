"""Checks on what callers hand in: one style of error, naming the cause and the remedy.

Shapes use fixed letters throughout gp_core: N training points, M query points, D inputs, O outputs,
F features, P hyperparameters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def as_float(value: Any, name: str) -> Array:
    """`value` as a float64 array with finite entries."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from None
    require_finite(array, name)
    return array


def require_finite(array: Array, name: str) -> None:
    """Refuse NaN and infinity, saying where the first one is."""
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        value = array[where]
        raise ValueError(
            f"{name} contains NaN or infinity (first at index {where}: {value}): remove or impute it"
        )


def as_points(X: Any, name: str = "X", n_inputs: int | None = None) -> Array:
    """`X` as points (N, D), N >= 1, finite."""
    array = as_float(X, name)
    if array.ndim != 2:
        raise ValueError(
            f"{name} must be points of shape (N, D), got shape {array.shape}: "
            "use reshape(-1, 1) for one input, reshape(1, -1) for one point"
        )
    if array.shape[0] == 0:
        raise ValueError(f"{name} holds no points: give at least 1")
    if array.shape[1] == 0:
        raise ValueError(f"{name} has points of dimension 0: give at least one input")
    if n_inputs is not None and array.shape[1] != n_inputs:
        raise ValueError(f"{name} has {array.shape[1]} inputs, expected {n_inputs}")
    return array


class Objects(list[Any]):
    """Checked objects that remember what kernels computed of each of them.

    A fit evaluates its kernel many times on the same objects, with other hyperparameters.
    """

    def __init__(self, objects: Iterable[Any] = ()) -> None:
        super().__init__(objects)
        self._remembered: dict[Hashable, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Objects, (list(self),)

    def remember(self, key: Hashable, compute: Callable[[list[Any]], Any]) -> Any:
        """compute(the objects), once for each key."""
        if key not in self._remembered:
            self._remembered[key] = compute(self)
        return self._remembered[key]


def remembered(X: list[Any], key: Hashable, compute: Callable[[list[Any]], Any]) -> Any:
    """compute(X), once for each key if X can remember."""
    return X.remember(key, compute) if isinstance(X, Objects) else compute(X)


def as_objects(X: Any, name: str = "X") -> Objects:
    """X as a non-empty list of N objects.

    A table of one column, as scikit-learn passes inputs, means its entries: a data frame, an array (N, 1) or a list
    of lists with one entry each. So a sequence of tokens is written as a tuple, not as a list.
    """
    if isinstance(X, Objects):
        return X
    rows = _rows(X, name)
    if isinstance(rows, np.ndarray):
        if rows.ndim == 2 and rows.shape[1] == 1:
            rows = rows[:, 0]
        if rows.ndim != 1:
            raise ValueError(
                f"{name} must hold one object per point, got shape {rows.shape}: choose a column, or use Columns"
            )
        return Objects(rows)
    if any(isinstance(row, list) for row in rows):
        for i, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != 1:
                raise ValueError(
                    f"{name} is a table, and {name}[{i}] is not a row of one object: give one object per point, "
                    "a sequence of tokens as a tuple, or use Columns"
                )
        return Objects(row[0] for row in rows)
    return Objects(rows)


def as_table(X: Any, name: str = "X") -> Table:
    """X as a table (N, C) of objects: a data frame, an array (N, C), or a list of rows."""
    if isinstance(X, Table):
        return X
    rows = _rows(X, name)
    if isinstance(rows, np.ndarray):
        if rows.ndim != 2:
            raise ValueError(f"{name} must be a table of shape (N, C), got shape {rows.shape}")
        return Table(rows.astype(object))
    widths = {len(row) if isinstance(row, (list, tuple)) else -1 for row in rows}
    if len(widths) != 1 or widths & {-1, 0}:
        raise ValueError(f"{name} must be a table: rows (lists) with the same number of entries")
    table = np.empty((len(rows), widths.pop()), dtype=object)
    for i, row in enumerate(rows):
        for j, entry in enumerate(row):
            table[i, j] = entry
    return Table(table)


def looks_like_objects(X: Any) -> bool:
    """Whether X holds sets, strings or other objects rather than numbers."""
    if isinstance(X, Table):
        return True
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    if isinstance(X, np.ndarray):
        return X.dtype.kind in "OUST"
    if not isinstance(X, (list, tuple)) or not X:
        return False
    try:
        return np.asarray(X[0]).dtype.kind not in "biuf"
    except ValueError:  # rows of different lengths, such as a tree
        return True


class Table:
    """Rows of objects (N, C), read by columns; remembers the columns that a kernel has read."""

    def __init__(self, cells: npt.NDArray[np.object_]) -> None:
        self.cells = cells
        self._read: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, rows: slice | npt.NDArray[np.intp]) -> Table:
        return Table(self.cells[rows])

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self.cells,)

    def columns(self, key: Hashable, indices: tuple[int, ...], read: Callable[[Any], Any]) -> Any:
        """read(the chosen columns), once for each key."""
        if max(indices) >= self.cells.shape[1]:
            raise ValueError(
                f"Columns: column {max(indices)} does not exist, the table has {self.cells.shape[1]}"
            )
        if key not in self._read:
            self._read[key] = read(self.cells[:, list(indices)])
        return self._read[key]


def take_rows(X: Any, rows: npt.NDArray[np.intp]) -> Any:
    """The points of checked inputs X (an array, a table or a list of objects) with these numbers."""
    return Objects(X[i] for i in rows) if isinstance(X, list) else X[rows]


def _rows(X: Any, name: str) -> Any:
    """X as an array or a list, never empty: data frames by their values, no mapping, no set."""
    if hasattr(X, "to_numpy"):  # pandas and polars iterate over column names
        X = X.to_numpy()
    if isinstance(X, (Mapping, Set)):
        raise ValueError(
            f"{name} must be a sequence of objects, got {type(X).__name__}, which has no order of points"
        )
    if isinstance(X, (str, bytes)) or not hasattr(X, "__len__") or not hasattr(X, "__iter__"):
        raise ValueError(f"{name} must be a sequence of objects, got {type(X).__name__}: wrap one in a list")
    rows = X if isinstance(X, np.ndarray) else list(X)
    if len(rows) == 0:
        raise ValueError(f"{name} holds no points: give at least 1")
    return rows


def as_vector(value: Any, name: str, length: int | None = None) -> Array:
    """`value` as a finite vector, of the given length if one is stated."""
    array = as_float(value, name)
    if array.ndim != 1 or (length is not None and array.shape[0] != length):
        expected = "(n,)" if length is None else f"({length},)"
        raise ValueError(f"{name} must have shape {expected}, got {array.shape}")
    return array


def as_targets(y: Any, n_points: int, name: str = "y") -> Array:
    """`y` as targets (N,) or (N, O), finite, one row per point."""
    array = as_float(y, name)
    if array.ndim not in (1, 2) or array.shape[0] != n_points:
        raise ValueError(
            f"{name} must have shape ({n_points},) or ({n_points}, O) to match the points, got {array.shape}"
        )
    return array


def positive(value: Any, name: str) -> float:
    """`value` as a finite float > 0."""
    number = _number(value, name)
    if number <= 0.0:
        raise ValueError(f"{name} must be > 0, got {number}")
    return number


def non_negative(value: Any, name: str) -> float:
    """`value` as a finite float >= 0."""
    number = _number(value, name)
    if number < 0.0:
        raise ValueError(f"{name} must be >= 0, got {number}")
    return number


def integer_at_least(value: Any, least: int, name: str) -> int:
    """`value` as an int >= `least`; a float that is not whole is refused."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be >= {least}, got {value}")
    return int(value)


def as_covariance(value: Any, size: int, name: str) -> Array:
    """A covariance (size, size) from a scalar variance, a vector of variances or a matrix.

    Symmetry is checked here, definiteness where the matrix is factorised.
    """
    array = as_float(value, name)
    if array.ndim == 0:
        array = np.full(size, float(array))
    if array.ndim == 1:
        if array.shape[0] != size:
            raise ValueError(f"{name} must hold {size} variances, got {array.shape[0]}")
        if (array < 0.0).any():
            raise ValueError(f"{name} holds a negative variance: {array.min()}")
        return np.diag(array)
    if array.shape != (size, size):
        raise ValueError(f"{name} must be a scalar, ({size},) or ({size}, {size}), got shape {array.shape}")
    if not np.allclose(array, array.T, rtol=1e-10, atol=1e-12 * max(1.0, float(np.abs(array).max()))):
        raise ValueError(f"{name} must be symmetric")
    return array


def _number(value: Any, name: str) -> float:
    array = as_float(value, name)
    if array.ndim != 0:
        raise ValueError(f"{name} must be one number, got shape {array.shape}")
    return float(array)
