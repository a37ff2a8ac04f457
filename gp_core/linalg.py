"""The one Cholesky factorisation of the package: jitter that is reported, solves, log-determinants."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from gp_core import blocked
from gp_core.arrays import Array
from gp_core.parallel import available_threads, map_blocks

JITTERS = (0.0, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6)
"""Tried in turn, each times the scale of the diagonal."""


_SMALL = 64
"""Up to this size dpotri is avoided: OpenBLAS may spend milliseconds there on waking its threads."""
_BLOCK = 512
"""Rows and columns worked on at a time."""
_STRIP = 32
_UPPER = np.triu(np.ones((_STRIP, _STRIP)))
"""What a block on the diagonal keeps, read by columns."""


class JitterWarning(UserWarning):
    """A factorisation succeeded only after a stated amount was added to the diagonal."""


@dataclass(frozen=True)
class Cholesky:
    """A + jitter I = L L'.

    lower: L (N, N), Fortran order, zeros above the diagonal
    jitter: what was added to the diagonal for the factorisation to exist; 0 in the healthy case
    """

    lower: Array
    jitter: float

    def solve(self, b: Array) -> Array:
        """A^-1 b for b (N,) or (N, R)."""
        if b.size == 0:
            return np.zeros_like(b)
        x: Array
        x, info = lapack.dpotrs(self.lower, b, lower=1)
        _require_done(info)
        return x.reshape(b.shape)

    def half_solve(self, b: Array, overwrite: bool = False) -> Array:
        """L^-1 b for b (N,) or (N, R). With `overwrite`, a Fortran-ordered b (N, R) becomes the result."""
        if b.size == 0:
            return np.zeros_like(b)
        columns = b if b.ndim == 2 else b[:, None]
        x: Array = blas.dtrsm(1.0, self.lower, columns, lower=1, overwrite_b=int(overwrite))
        return x if b.ndim == 2 else x[:, 0]

    def inverse(self) -> Array:
        """A^-1 (N, N)."""
        inverse = self.inverse_lower(overwrite=False)
        mirror_lower(inverse)
        return inverse

    def inverse_lower(self, overwrite: bool = False) -> Array:
        """The lower triangle of A^-1 (N, N), Fortran order, zeros above.

        With `overwrite` the factor is consumed: do not use it afterwards.
        """
        if len(self.lower) <= _SMALL:
            T = self._lower_inverse
            return np.asfortranarray(np.tril(T.T @ T))
        threads = _threads(len(self.lower))
        inverse = self.lower if overwrite else self.lower.copy(order="F")
        blocked.invert_triangle(inverse, threads)
        blocked.multiply_triangle(inverse, threads)
        return inverse

    def quadratic(self, B: Array) -> Array:
        """(M,) with b'A^-1 b for each row b of B (M, N).

        |L^-1 b|^2 with L^-1 formed once: a product runs faster than a triangular solve.
        """
        T = self._lower_inverse
        rows = [slice(i, i + _BLOCK) for i in range(0, len(B), _BLOCK)]
        return np.concatenate(
            [np.zeros(0), *map_blocks(lambda part: blocked.squared_norms(T, B[part]), rows)]
        )

    def prepare_quadratic(self) -> None:
        """Form L^-1 now, so that several threads may call `quadratic` next."""
        _ = self._lower_inverse

    @cached_property
    def _lower_inverse(self) -> Array:
        T = self.lower.copy(order="F")
        blocked.invert_triangle(T, _threads(len(T)))
        return T

    @property
    def log_determinant(self) -> float:
        """log |A| = 2 sum_i log L_ii."""
        return 2.0 * float(np.log(np.diagonal(self.lower)).sum())


def extend_factor(
    factor: Cholesky, cross: Array, corner: Array, remedy: str = "raise noise_variance"
) -> Cholesky:
    """The factor of [[A, C], [C', D]] from that of A (N, N), in O(N^2 R) for R new rows.

    cross: C (N, R)
    corner: D (R, R)
    """
    n, r = cross.shape
    below = factor.half_solve(np.asfortranarray(cross)).T  # (R, N)
    rest = cholesky(corner - below @ below.T, scale=float(np.diagonal(corner).mean()), remedy=remedy)
    lower = np.zeros((n + r, n + r), order="F")
    lower[:n, :n] = factor.lower
    lower[n:, :n] = below
    lower[n:, n:] = rest.lower
    return Cholesky(lower, max(factor.jitter, rest.jitter))


def product(A: Array, B: Array) -> Array:
    """A B for C-ordered A (M, N) and B (N, O), by the library that also factorises and solves.

    numpy and scipy each bring a BLAS with threads of its own, which wait for work by spinning: called in turn, the
    idle ones take the cores from the busy ones, and a prediction takes twice as long.
    """
    C: Array = blas.dgemm(1.0, A.T, B, trans_a=1)
    return C


def matrix_vector(A: Array, b: Array) -> Array:
    """A b for C-ordered A (M, N) and b (N,), by the same library as `product`, for the same reason."""
    c: Array = blas.dgemv(1.0, A.T, b, trans=1)
    return c


def cholesky(
    A: Array,
    *,
    overwrite: bool = False,
    scale: float | None = None,
    what: str = "the kernel",
    remedy: str = "raise noise_variance",
) -> Cholesky:
    """Factorise the symmetric matrix A (N, N), both triangles filled.

    A rounding-level deficiency is repaired by the smallest jitter of `JITTERS` that works, and reported in
    the result. A matrix that is truly indefinite is refused with a ValueError.

    overwrite: A may be destroyed (saves N^2 numbers; A must be C- or Fortran-contiguous for that)
    scale: what the jitter is relative to; the mean of the diagonal unless stated
    what, remedy: the subject and the advice of the error
    """
    diagonal = np.diagonal(A).copy()
    if not np.isfinite(diagonal).all():
        raise ValueError(f"{what} is not finite here: check the hyperparameters and the inputs")
    if scale is None:
        scale = float(np.abs(diagonal).mean()) if diagonal.size else 1.0
    fortran = A.T if A.flags.c_contiguous else A
    work = fortran if overwrite else np.array(fortran, order="F")
    # dpotrf(clean=0) leaves the other triangle alone, so that a second try can restore A from it.
    for level in JITTERS:
        jitter = level * scale
        if jitter:
            _restore_lower(work, diagonal + jitter)
        lower, info = _factorise(work)
        if info == 0:
            work = lower
            _zero_upper(work)
            if not np.isfinite(np.diagonal(work)).all():
                break
            return Cholesky(work, jitter)
        if info < 0:
            break
        work = lower
    raise ValueError(f"{what} is not positive definite here: {remedy}")


def require_semidefinite(A: Array, name: str) -> None:
    """Refuse a symmetric matrix with a negative eigenvalue, beyond rounding; O(N^3)."""
    if A.any():
        cholesky(A, what=name, remedy="a covariance has no negative eigenvalue")


def _factorise(work: Array) -> tuple[Array, int]:
    """L in the lower triangle of `work`, in place, and LAPACK's info."""
    threads = _threads(len(work))
    if threads > 1:
        return work, blocked.factorise(work, threads)
    lower, info = lapack.dpotrf(work, lower=1, clean=0, overwrite_a=1)
    return lower, int(info)


def _threads(n: int) -> int:
    return available_threads() if n >= blocked.LEAST_SIZE else 1


def report_jitter(
    jitter: float,
    what: str = "the kernel matrix",
    cause: str = "Duplicate points or a tiny noise_variance",
    stacklevel: int = 3,
) -> None:
    """Tell the user once that a factorisation needed help."""
    if jitter > 0.0:
        warnings.warn(
            f"{what} is numerically singular: {jitter:.1e} was added to its diagonal. "
            f"{cause} are the usual cause.",
            JitterWarning,
            stacklevel=stacklevel,
        )


def mirror_lower(A: Array) -> None:
    """Copy the lower triangle of A (N, N) onto the upper one, in place, by blocks that stay in cache."""
    n = A.shape[0]
    for i in range(0, n, _BLOCK):
        block = A[i : i + _BLOCK, i : i + _BLOCK]
        rows, columns = np.triu_indices(block.shape[0], 1)
        block[rows, columns] = block[columns, rows]
        A[i : i + _BLOCK, i + _BLOCK :] = A[i + _BLOCK :, i : i + _BLOCK].T


def _restore_lower(A: Array, diagonal: Array) -> None:
    """Copy the untouched upper triangle of A back onto the lower one and set the diagonal."""
    mirror_lower(A.T)
    np.fill_diagonal(A, diagonal)


def _zero_upper(A: Array) -> None:
    """By strips of columns, contiguous in Fortran order: one by one they would take a fifth of dpotrf's time."""
    for start in range(0, len(A), _STRIP):
        columns = A.T[start : start + _STRIP]
        columns[:, :start] = 0.0
        block = columns[:, start : start + _STRIP]
        block *= _UPPER[: len(block), : len(block)]


def _require_done(info: Any) -> None:
    if info != 0:
        raise ValueError(f"a triangular solve failed (LAPACK info {info}): the factor is singular")
