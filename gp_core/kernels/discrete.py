"""Kernels on sets and on strings: similarity where there is no vector."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from gp_core.arrays import Array, Objects, remembered
from gp_core.kernels.objects import ObjectKernel
from gp_core.kernels.stationary import RBF
from gp_core.parameters import POSITIVE, Bounds, Parameter, Values
from gp_core.scales import DataScale

_BLOCK_ENTRIES = 1_000_000
_MAX_EXPONENT = 1000
"""2^1000 is still a float64, with room for sums and products."""


@dataclass(frozen=True, repr=False)
class SetIntersection(ObjectKernel):
    """k(A, B) = 2^|A & B|: the number of subsets that A and B share, so an inner product over subsets.

    normalized: divide by sqrt(k(A, A) k(B, B)), which gives 2^(|A & B| - (|A| + |B|) / 2) and k(A, A) = 1
    """

    normalized: bool = False

    def _conditional(self) -> str:
        return ""

    def _check(self, X: Any, name: str = "X") -> Objects:
        sets = super()._check(X, name)
        for i, one in enumerate(sets):
            if not isinstance(one, (set, frozenset)):
                raise ValueError(f"{name}[{i}] must be a set, got {type(one).__name__}: use set(...)")
        return sets

    def _log2(self, X: list[Any], Z: list[Any] | None) -> Array:
        other = X if Z is None else Z
        index = {element: i for i, element in enumerate(set().union(*X, *other))}
        common: Array = (_membership(X, index) @ _membership(other, index).T).toarray()
        if self.normalized:
            common -= 0.5 * np.add.outer([len(a) for a in X], [len(b) for b in other])
        return common

    def _power(self, exponent: Array) -> Array:
        if exponent.size and exponent.max() > _MAX_EXPONENT:
            raise ValueError(
                f"SetIntersection: 2^{int(exponent.max())} overflows, the sets are too large: "
                "use SetIntersection(normalized=True)"
            )
        return np.exp2(exponent)

    def _matrix(self, X: list[Any], Z: list[Any] | None) -> Array:
        return self._power(self._log2(X, Z))

    def _log_matrix(self, X: list[Any], Z: list[Any] | None) -> Array:
        log_k: Array = np.log(2.0) * self._log2(X, Z)
        return log_k

    def _diag(self, X: list[Any]) -> Array:
        sizes = np.array([len(a) for a in X], dtype=np.float64)
        return np.ones(len(X)) if self.normalized else self._power(sizes)


@dataclass(frozen=True, repr=False)
class EditDistance(ObjectKernel):
    """k(s, t) = exp(-d(s, t) / l), d the Levenshtein distance: insertions, deletions and substitutions.

    The edit distance does not embed in a Hilbert space, so this function is a kernel on some data sets and
    not on others. Two ways to a valid one:

    - It is refused with a ValueError where the Gram matrix has a negative eigenvalue. For n distinct strings
      and l <= 1 / log(n - 1) the matrix is diagonally dominant, and it never has one.
    - With `references` r_1, ..., r_R each string becomes its vector of distances v(s) = (d(s, r_1), ...), and
      k(s, t) = exp(-|v(s) - v(t)|^2 / (2 l^2 R)), an RBF of vectors, which is a kernel on every data set.

    length_scale: l, in edits
    references: strings to measure distances from; None for the direct form
    """

    length_scale: Values = 1.0
    references: tuple[Any, ...] | None = None
    length_scale_bounds: Bounds = POSITIVE

    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("length_scale", role="length"),)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.references is not None:
            references = tuple(self._check(self.references, "EditDistance: references"))
            self._set("references", references)

    def _conditional(self) -> str:
        if self.references is not None:
            return ""
        return "shorten length_scale of EditDistance, or give it references"

    def _check(self, X: Any, name: str = "X") -> Objects:
        strings = super()._check(X, name)
        for i, one in enumerate(strings):
            if not isinstance(one, (str, bytes, tuple, list)):
                raise ValueError(f"{name}[{i}] must be a string or a sequence, got {type(one).__name__}")
        if not any(isinstance(one, list) for one in strings):
            return strings
        return Objects(tuple(one) if isinstance(one, list) else one for one in strings)

    def _units(self, parameter: Parameter, value: Array, data: DataScale) -> Array:
        distances = _distances_between(data.X, self.references)
        mean = float(np.mean(distances))
        return np.full(1, mean if mean > 0.0 else 1.0)

    def _vectors(self, X: list[Any]) -> Array:
        assert self.references is not None
        distances = _distances_between(X, self.references)
        return np.asarray(distances / np.sqrt(len(self.references)))

    def _rbf(self) -> RBF:
        return RBF(self.length_scale, self.length_scale_bounds)

    def _map(self, X: list[Any], Z: list[Any] | None) -> tuple[Array, Array | None]:
        return self._vectors(X), None if Z is None else self._vectors(Z)

    def _log_matrix(self, X: list[Any], Z: list[Any] | None) -> Array:
        if self.references is not None:
            return self._rbf()._log_matrix(*self._map(X, Z))
        distances = _distances_between(X, Z)
        return np.asarray(distances, dtype=np.float64) / -float(self.length_scale)

    def _matrix(self, X: list[Any], Z: list[Any] | None) -> Array:
        return np.exp(self._log_matrix(X, Z))

    def _diag(self, X: list[Any]) -> Array:
        return np.ones(len(X))

    def _gradient_theta(self, X: list[Any], Z: list[Any] | None) -> Array:
        if self.references is not None:
            return self._rbf()._gradient_theta(*self._map(X, Z))
        log_k = self._log_matrix(X, Z)
        return (-log_k * np.exp(log_k))[:, :, None][:, :, : self.n_theta]  # dk/dlog l = k d / l


def _distances_between(X: list[Any], Z: Any) -> npt.NDArray[np.int32]:
    """Edit distances of X to itself (Z None), to references (a tuple) or to other strings (a list)."""
    if Z is not None and not isinstance(Z, tuple):
        return edit_distances(X, Z)
    distances: npt.NDArray[np.int32] = remembered(
        X, ("edit distances", Z), lambda strings: edit_distances(strings, strings if Z is None else Z)
    )
    return distances


def edit_distances(X: Sequence[Any], Z: Sequence[Any]) -> npt.NDArray[np.int32]:
    """(N, M) Levenshtein distances between strings (or sequences of hashable tokens).

    The recursion over prefixes runs once for all pairs of distinct strings together:
    d(i, j) = min(d(i-1, j) + 1, d(i, j-1) + 1, d(i-1, j-1) + [s_i != t_j]).
    """
    left, left_index = _distinct(X)
    right, right_index = _distinct(Z)
    codes: dict[Hashable, int] = {}
    s, s_lengths = _encode(left, codes, pad=-1)
    t, t_lengths = _encode(right, codes, pad=-2)
    step = max(1, _BLOCK_ENTRIES // max(1, t.shape[0] * (t.shape[1] + 1)))
    parts = [
        _distances(s[i : i + step], s_lengths[i : i + step], t, t_lengths) for i in range(0, len(s), step)
    ]
    return np.concatenate(parts)[np.ix_(left_index, right_index)]


def _distances(
    s: npt.NDArray[np.int32],
    s_lengths: npt.NDArray[np.intp],
    t: npt.NDArray[np.int32],
    t_lengths: npt.NDArray[np.intp],
) -> npt.NDArray[np.int32]:
    n, m, width = len(s), len(t), t.shape[1]
    row = np.empty((width + 1, n, m), dtype=np.int32)  # d(i, .) for every pair
    row[:] = np.arange(width + 1)[:, None, None]
    out = np.empty((n, m), dtype=np.int32)
    columns = np.arange(m)
    for i in range(s.shape[1] + 1):
        if i > 0:
            diagonal = row[0].copy()
            row[0] = i
            for j in range(1, width + 1):
                substituted = diagonal + (s[:, i - 1, None] != t[None, :, j - 1])
                diagonal = row[j].copy()
                np.minimum(row[j], row[j - 1], out=row[j])
                row[j] += 1
                np.minimum(row[j], substituted, out=row[j])
        ends = np.flatnonzero(s_lengths == i)
        out[ends] = row[t_lengths[None, :], ends[:, None], columns[None, :]]
    return out


def _distinct(X: Sequence[Any]) -> tuple[list[Any], npt.NDArray[np.intp]]:
    index: dict[Hashable, int] = {}
    positions = [index.setdefault(one, len(index)) for one in X]
    return list(index), np.array(positions, dtype=np.intp)


def _encode(
    strings: list[Any], codes: dict[Hashable, int], pad: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.intp]]:
    lengths = np.array([len(one) for one in strings], dtype=np.intp)
    table = np.full((len(strings), int(lengths.max(initial=0))), pad, dtype=np.int32)
    for i, one in enumerate(strings):
        table[i, : len(one)] = [codes.setdefault(token, len(codes)) for token in one]
    return table, lengths


def _membership(sets: list[Any], index: dict[Hashable, int]) -> csr_matrix:
    """(N, |index|) with 1 where the set holds the element."""
    columns = [index[element] for one in sets for element in one]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in sets])])
    return csr_matrix((np.ones(len(columns)), columns, starts), shape=(len(sets), max(1, len(index))))
