"""BLAS and LAPACK on parts of a matrix in place: what scipy's wrappers would copy first.

The routines are those of the library that scipy is linked with, called by address (`scipy.linalg.cython_blas`). A call
holds no interpreter lock, so that several threads can work on disjoint parts of one matrix. Matrices are float64 in
Fortran order or rectangular views of such; of triangular and symmetric ones the lower triangle is meant.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

from gp_core.arrays import Array

_pointer_name = ctypes.pythonapi.PyCapsule_GetName
_pointer_name.restype, _pointer_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _routine(module: Any, name: str, n_arguments: int) -> Callable[..., None]:
    """The Fortran routine: every argument is a pointer."""
    capsule = module.__pyx_capi__[name]
    address = _pointer(capsule, _pointer_name(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address)


_dgemm = _routine(cython_blas, "dgemm", 13)
_dsyrk = _routine(cython_blas, "dsyrk", 10)
_dtrsm = _routine(cython_blas, "dtrsm", 11)
_dtrmm = _routine(cython_blas, "dtrmm", 11)
_dpotrf = _routine(cython_lapack, "dpotrf", 5)
_dtrtri = _routine(cython_lapack, "dtrtri", 6)
_dlauum = _routine(cython_lapack, "dlauum", 5)


def add_product(
    C: Array, A: Array, B: Array, scale: float, trans_a: bool = False, trans_b: bool = False
) -> None:
    """C += scale op(A) op(B), op the identity or the transpose."""
    if C.size == 0:
        return
    inner = A.shape[0] if trans_a else A.shape[1]
    _dgemm(
        _flag(trans_a), _flag(trans_b), _int(C.shape[0]), _int(C.shape[1]), _int(inner), _double(scale),
        A.ctypes.data, _stride(A), B.ctypes.data, _stride(B), _double(1.0), C.ctypes.data, _stride(C),
    )  # fmt: skip


def add_square(C: Array, A: Array, scale: float, trans: bool) -> None:
    """The lower triangle of C += scale A'A if `trans`, else scale A A'."""
    if C.size == 0:
        return
    inner = A.shape[0] if trans else A.shape[1]
    _dsyrk(
        b"L", _flag(trans), _int(len(C)), _int(inner), _double(scale),
        A.ctypes.data, _stride(A), _double(1.0), C.ctypes.data, _stride(C),
    )  # fmt: skip


def solve_right(L: Array, B: Array) -> None:
    """B := B L'^-1."""
    _triangular(_dtrsm, b"R", True, 1.0, L, B)


def multiply_right(L: Array, B: Array, scale: float = 1.0) -> None:
    """B := scale B L."""
    _triangular(_dtrmm, b"R", False, scale, L, B)


def multiply_left(L: Array, B: Array, scale: float = 1.0, trans: bool = False) -> None:
    """B := scale L B, or scale L'B if `trans`."""
    _triangular(_dtrmm, b"L", trans, scale, L, B)


def factorise(A: Array) -> int:
    """The lower triangle of A becomes L with A = L L'; 0, or the order of the first minor that is not positive."""
    info = ctypes.c_int(0)
    _dpotrf(b"L", _int(len(A)), A.ctypes.data, _stride(A), ctypes.byref(info))
    return info.value


def invert_triangle(L: Array) -> None:
    """L := L^-1."""
    info = ctypes.c_int(0)
    _dtrtri(b"L", b"N", _int(len(L)), L.ctypes.data, _stride(L), ctypes.byref(info))


def multiply_triangle(T: Array) -> None:
    """The lower triangle of T becomes that of T'T."""
    info = ctypes.c_int(0)
    _dlauum(b"L", _int(len(T)), T.ctypes.data, _stride(T), ctypes.byref(info))


def _triangular(
    routine: Callable[..., None], side: bytes, trans: bool, scale: float, L: Array, B: Array
) -> None:
    if B.size == 0:
        return
    routine(
        side, b"L", _flag(trans), b"N", _int(B.shape[0]), _int(B.shape[1]), _double(scale),
        L.ctypes.data, _stride(L), B.ctypes.data, _stride(B),
    )  # fmt: skip


def _stride(A: Array) -> Any:
    """The leading dimension: numbers between the heads of two columns."""
    if A.dtype != np.float64 or (A.shape[0] > 1 and A.strides[0] != A.itemsize):
        raise ValueError("BLAS needs float64 columns without gaps: give an array in Fortran order")
    return _int(A.strides[1] // A.itemsize if A.shape[1] > 1 else max(1, A.shape[0]))


def _flag(trans: bool) -> bytes:
    return b"T" if trans else b"N"


def _int(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _double(value: float) -> Any:
    return ctypes.byref(ctypes.c_double(value))
