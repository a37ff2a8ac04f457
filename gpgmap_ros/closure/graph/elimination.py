"""Cholesky factor of a symmetric block-sparse matrix, and the diagonal blocks of its inverse.

The multifrontal method (Duff and Reid, 1983): nodes are eliminated in an order of minimum degree; each group is a
dense front, whose Schur complement is added to the front above it. All arithmetic is LAPACK's on dense fronts. The
structure depends on the graph only, and is found once for all matrices of it. The inverse is computed where the factor
is not zero, from the last front back to the first (Takahashi et al., 1973).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse.linalg import splu

from gp_core.arrays import Array

Indices = NDArray[np.intp]

GROUP = 16
"""Nodes that are eliminated together even if that stores zeros: fewer, larger fronts are faster."""


class NotPositiveDefinite(ValueError):
    """The matrix has no Cholesky factor."""


@dataclass
class Front:
    """Nodes that are eliminated together, and those above that they are joined to.

    nodes: the eliminated ones, then the others; count: how many are eliminated
    parent: index of the front above, -1 at a root; place: rows of the others in the parent's front
    source, destination: where the matrix' numbers are, and where in this front they go
    """

    nodes: list[int]
    count: int
    parent: int
    place: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    source: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    destination: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.intp))


class Structure:
    """How to eliminate the nodes of a graph.

    count: nodes; first, second: (M,) nodes that an off-diagonal block joins, each pair once and first != second
    size: rows of a block
    """

    def __init__(self, count: int, first: Indices, second: Indices, size: int) -> None:
        self.count, self.size = count, size
        order = elimination_order(count, first, second)
        self.fronts = group_fronts(*eliminate(order, first, second))
        self._find_numbers(first, second)

    def _find_numbers(self, first: Indices, second: Indices) -> None:
        """Where the blocks of the matrix go: each to the front that eliminates the earlier of its two nodes."""
        b = self.size
        front_of = np.zeros(self.count, dtype=np.intp)
        rank = np.zeros(self.count, dtype=np.intp)
        number = 0
        for k, front in enumerate(self.fronts):
            for node in front.nodes[: front.count]:
                front_of[node], rank[node] = k, number
                number += 1
        blocks: list[list[tuple[int, int, int]]] = [[] for _ in self.fronts]  # block, row node, column node
        for node in range(self.count):
            blocks[front_of[node]].append((node, node, node))
        for k, (i, j) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            owner = front_of[i] if rank[i] < rank[j] else front_of[j]
            blocks[owner].append((self.count + k, i, j))
        inside = np.arange(b * b, dtype=np.intp)
        row, column = inside // b, inside % b
        for front, own in zip(self.fronts, blocks, strict=True):
            at = {node: b * k for k, node in enumerate(front.nodes)}
            width = b * len(front.nodes)
            source, destination = [], []
            for block, i, j in own:
                source.append(block * b * b + inside)
                destination.append((at[i] + row) * width + at[j] + column)
                if i != j:
                    source.append(block * b * b + inside)
                    destination.append((at[j] + column) * width + at[i] + row)
            front.source, front.destination = np.concatenate(source), np.concatenate(destination)
            if front.parent >= 0:
                above = {node: b * k for k, node in enumerate(self.fronts[front.parent].nodes)}
                starts = np.array([above[node] for node in front.nodes[front.count :]], dtype=np.intp)
                front.place = (starts[:, None] + np.arange(b, dtype=np.intp)).ravel()


class Factor:
    """The Cholesky factor of a matrix with that structure.

    diagonal: (N, b, b) symmetric blocks
    off_diagonal: (M, b, b) blocks in the rows of `first` and the columns of `second`
    NotPositiveDefinite where there is none.
    """

    def __init__(self, structure: Structure, diagonal: Array, off_diagonal: Array) -> None:
        self._structure = structure
        values = np.concatenate([diagonal.ravel(), off_diagonal.ravel()])
        waiting: list[list[tuple[Indices, Array]]] = [[] for _ in structure.fronts]
        self._lower: list[Array] = []
        self._beside: list[Array] = []
        for k, front in enumerate(structure.fronts):
            width, own = structure.size * len(front.nodes), structure.size * front.count
            F = np.zeros((width, width))
            F.ravel()[front.destination] = values[front.source]
            for place, update in waiting[k]:
                F[place[:, None], place] += update
            waiting[k] = []
            lower, info = lapack.dpotrf(F[:own, :own], lower=1, clean=1)
            if info != 0:
                raise NotPositiveDefinite("the matrix is not positive definite")
            self._lower.append(lower)
            if width == own:
                self._beside.append(np.zeros((own, 0)))
                continue
            beside, _ = lapack.dtrtrs(lower, F[:own, own:], lower=1)
            self._beside.append(beside)
            waiting[front.parent].append((front.place, F[own:, own:] - beside.T @ beside))

    def solve(self, right: Array) -> Array:
        """(N, b) solution for a right side (N, b)."""
        b = self._structure.size
        x = np.array(right, dtype=np.float64)
        fronts = list(zip(self._structure.fronts, self._lower, self._beside, strict=True))
        for front, lower, beside in fronts:
            own, others = front.nodes[: front.count], front.nodes[front.count :]
            y, _ = lapack.dtrtrs(lower, x[own].ravel(), lower=1)
            x[own] = y.reshape(-1, b)
            if others:
                x[others] -= (beside.T @ y).reshape(-1, b)
        for front, lower, beside in reversed(fronts):
            own, others = front.nodes[: front.count], front.nodes[front.count :]
            y = x[own].ravel()
            if others:
                y = y - beside @ x[others].ravel()
            y, _ = lapack.dtrtrs(lower, y, lower=1, trans=1)
            x[own] = y.reshape(-1, b)
        return x

    def inverse_diagonal(self) -> Array:
        """(N, b, b) diagonal blocks of the inverse."""
        structure, b = self._structure, self._structure.size
        out = np.zeros((structure.count, b, b))
        waiting = [0] * len(structure.fronts)  # children that still need the inverse of a front
        for front in structure.fronts:
            if front.parent >= 0:
                waiting[front.parent] += 1
        inverse_of: dict[int, Array] = {}
        for k in range(len(structure.fronts) - 1, -1, -1):
            front, lower, beside = structure.fronts[k], self._lower[k], self._beside[k]
            own = b * front.count
            L_inverse, _ = lapack.dtrtri(lower, lower=1)
            inverse = np.empty((b * len(front.nodes),) * 2)
            inverse[:own, :own] = L_inverse.T @ L_inverse
            if front.parent >= 0:
                above = inverse_of[front.parent][front.place[:, None], front.place]
                K = L_inverse.T @ beside
                KZ = K @ above
                inverse[own:, own:], inverse[:own, own:], inverse[own:, :own] = above, -KZ, -KZ.T
                inverse[:own, :own] += KZ @ K.T
                waiting[front.parent] -= 1
                if not waiting[front.parent]:
                    del inverse_of[front.parent]
            for n, node in enumerate(front.nodes[: front.count]):
                out[node] = inverse[n * b : (n + 1) * b, n * b : (n + 1) * b]
            if waiting[k]:
                inverse_of[k] = inverse
        return out


def elimination_order(count: int, first: Indices, second: Indices) -> Indices:
    """(N,) nodes by multiple minimum degree: SuperLU's, on a matrix of one number per block."""
    ones = np.ones(len(first))
    joined = scipy.sparse.coo_matrix((ones, (first, second)), shape=(count, count))
    joined = joined + joined.T
    degree = np.asarray(joined.sum(axis=1)).ravel()
    laplacian = scipy.sparse.csc_matrix(scipy.sparse.diags(degree + 1.0) - joined)
    options = {"SymmetricMode": True}
    factor = splu(laplacian, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    return np.argsort(factor.perm_c)


def eliminate(order: Indices, first: Indices, second: Indices) -> tuple[Indices, list[set[int]]]:
    """The order, and for each node of it the later ones that its column of the factor reaches."""
    count = len(order)
    rank = np.empty(count, dtype=np.intp)
    rank[order] = np.arange(count)
    reached: list[set[int]] = [set() for _ in range(count)]  # by rank
    for i, j in zip(rank[first].tolist(), rank[second].tolist(), strict=True):
        reached[min(i, j)].add(max(i, j))
    for k in range(count):
        if reached[k]:
            parent = min(reached[k])
            reached[parent] |= reached[k]
            reached[parent].discard(parent)
    return order, reached


def group_fronts(order: Indices, reached: list[set[int]]) -> list[Front]:
    """Fronts in the order of their elimination, children before their parents.

    A node joins the group of the first node that it reaches if the group stays small, or if no zeros are stored.
    """
    count = len(order)
    group = np.arange(count)  # rank of the last node of a node's group
    members: dict[int, list[int]] = {k: [k] for k in range(count)}
    for k in range(count - 2, -1, -1):
        if not reached[k]:
            continue
        above = int(group[min(reached[k])])
        last = members[above]
        full = len(reached[k]) == len(reached[above]) + len(last)
        if full or len(last) < GROUP:
            group[k] = above
            members[above].append(k)
            del members[k]
    tops = sorted(members)
    index = {top: k for k, top in enumerate(tops)}
    fronts = []
    for top in tops:
        own = sorted(members[top])
        others = sorted(reached[top])
        parent = index[int(group[others[0]])] if others else -1
        fronts.append(Front([int(order[k]) for k in own + others], len(own), parent))
    return fronts
