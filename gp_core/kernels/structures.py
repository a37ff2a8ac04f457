"""Kernels on trees and on graphs: inner products of the substructures that two objects share."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gp_core.arrays import Array, Objects, integer_at_least, remembered
from gp_core.kernels.objects import ObjectKernel
from gp_core.parameters import Bounds, Parameter, Values

Tree = tuple[Any, ...]
"""(label, child, child, ...), each child a tree; a leaf may be written as its label."""


@dataclass(frozen=True, repr=False)
class SubtreeKernel(ObjectKernel):
    """k(S, T) = sum over nodes s of S and t of T of C(s, t): the subtrees that two ordered trees share.

        C(s, t) = 0                                    if the labels or the labels of the children differ
        C(s, t) = decay prod_j (1 + C(s_j, t_j))       otherwise, over the children

    C counts the common subtrees rooted at s and t, a subtree of height h with about decay^(its nodes); a convolution of
    the kernel on nodes (Haussler 1999; Collins and Duffy 2002). It is an inner product, so valid on every data set.

    Parameters
    ----------
    decay : float in (0, 1]
        Weight of a further node; small values count small subtrees only.
    normalized : bool
        Divide by sqrt(k(S, S) k(T, T)), so that the size of a tree does not matter.

    Examples
    --------
    >>> tree, other = ("s", ("np", "dog"), ("vp", "barks")), ("s", ("np", "cat"), ("vp", "barks"))
    >>> SubtreeKernel(0.5)([tree, other]).round(3)
    array([[1.   , 0.527],
           [0.527, 1.   ]])
    """

    decay: Values = 0.5
    decay_bounds: Bounds = (1e-3, 1.0)
    normalized: bool = True

    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("decay"),)

    def _conditional(self) -> str:
        return ""

    def _check(self, X: Any, name: str = "X") -> Objects:
        trees = super()._check(X, name)
        trees.remember(_NODES, lambda trees: [_Nodes(one, f"{name}[{i}]") for i, one in enumerate(trees)])
        return trees

    def compare(self, x: Any, z: Any) -> float:
        return float(self([x], [z])[0, 0])

    def _matrix(self, X: Any, Z: Any) -> Array:
        left = _nodes_of(X)
        right = left if Z is None else _nodes_of(Z)
        if Z is None:
            K = np.empty((len(left), len(left)))
            for i, x in enumerate(left):
                K[i, i:] = K[i:, i] = [self._count(x, z) for z in left[i:]]
        else:
            K = np.array([[self._count(x, z) for z in right] for x in left], dtype=np.float64)
        if self.normalized:
            sizes = np.diagonal(K).copy() if Z is None else self._sizes(left)
            K /= np.sqrt(np.outer(sizes, sizes if Z is None else self._sizes(right)))
        return K

    def _diag(self, X: Any) -> Array:
        return np.ones(len(X)) if self.normalized else self._sizes(_nodes_of(X))

    def _sizes(self, trees: list[_Nodes]) -> Array:
        """(N,) k(T, T) before it is normalised."""
        return np.array([self._count(x, x) for x in trees])

    def _count(self, x: _Nodes, z: _Nodes) -> float:
        """The sum over pairs of nodes; children come before their parents, so one pass fills the table."""
        decay = float(self.decay)
        C: dict[tuple[int, int], float] = {}
        total = 0.0
        for i, (production, children) in enumerate(x.nodes):
            for j in z.by_production.get(production, ()):
                value = decay
                for a, b in zip(children, z.nodes[j][1], strict=True):
                    value *= 1.0 + C.get((a, b), 0.0)
                C[i, j] = value
                total += value
        if not np.isfinite(total):
            raise ValueError("SubtreeKernel: the trees share too many subtrees for a float: lower decay")
        return total


_NODES = "nodes of trees"


def _nodes_of(trees: list[Any]) -> list[_Nodes]:
    found: list[_Nodes] = remembered(trees, _NODES, lambda trees: [_Nodes(one, "X") for one in trees])
    return found


class _Nodes:
    """A tree as a list of nodes, children first."""

    def __init__(self, tree: Any, name: str) -> None:
        self.nodes: list[tuple[Hashable, tuple[int, ...]]] = []
        self.by_production: dict[Hashable, list[int]] = {}
        # A stack and no recursion: a tree may be deeper than Python's calls. A node is met twice, before its children
        # and after them, when these are the last entries of `done`.
        done: list[tuple[int, Hashable]] = []
        stack = [(tree, False)]
        while stack:
            node, has_children_done = stack.pop()
            label, children = _split(node, name)
            if children and not has_children_done:
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(children))
                continue
            parts = done[len(done) - len(children) :]
            del done[len(done) - len(children) :]
            production = (label, tuple(part[1] for part in parts))
            self.by_production.setdefault(production, []).append(len(self.nodes))
            done.append((len(self.nodes), label))
            self.nodes.append((production, tuple(part[0] for part in parts)))


def _split(node: Any, name: str) -> tuple[Hashable, tuple[Any, ...]]:
    """Label and children of a node, checked."""
    if isinstance(node, tuple) and not node:
        raise ValueError(f"{name} holds an empty tree: a tree is (label, child, ...)")
    label, children = (node[0], node[1:]) if isinstance(node, tuple) else (node, ())
    if not isinstance(label, Hashable) or isinstance(label, tuple):
        raise ValueError(f"{name} has a node with label {label!r}: labels must be strings or numbers")
    return label, children


@dataclass(frozen=True)
class Graph:
    """A labelled, undirected graph; a molecule: atoms and bonds.

    Parameters
    ----------
    labels : sequence
        One label per node, such as the element of an atom.
    edges : sequence of (i, j) or (i, j, label)
        Pairs of node indices, with the kind of the bond where there are several.

    Examples
    --------
    >>> water = Graph(["O", "H", "H"], [(0, 1), (0, 2)])
    >>> len(water)
    3
    """

    labels: Sequence[Hashable]
    edges: Sequence[tuple[Any, ...]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(map(_plain, self.labels)))
        edges = [tuple(map(_plain, edge)) if isinstance(edge, Iterable) else (edge,) for edge in self.edges]
        object.__setattr__(self, "edges", tuple(edges))
        for edge in self.edges:
            if len(edge) not in (2, 3) or not all(self._has_node(i) for i in edge[:2]):
                raise ValueError(
                    f"Graph: edge {edge!r} must be (i, j) or (i, j, label) with nodes 0 to {len(self) - 1}"
                )

    def _has_node(self, index: Any) -> bool:
        return isinstance(index, (int, np.integer)) and 0 <= int(index) < len(self.labels)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, repr=False)
class WeisfeilerLehman(ObjectKernel):
    """k(G, H) = sum over h = 0, ..., iterations of the pairs of nodes of G and H with the same label after h rounds.

    In each round a node's label becomes the pair of its label and the sorted labels of its neighbours (with those of
    the edges), so that after h rounds it stands for its neighbourhood of radius h (Shervashidze et al. 2011). An inner
    product of counts, so valid on every data set; linear in the number of edges.

    Parameters
    ----------
    iterations : int >= 0
        Rounds; 2 or 3 are enough for small molecules. Not learned.
    normalized : bool
        Divide by sqrt(k(G, G) k(H, H)), so that the size of a graph does not matter.

    Examples
    --------
    >>> water = Graph("OHH", [(0, 1), (0, 2)])
    >>> peroxide = Graph("OOHH", [(0, 1), (0, 2), (1, 3)])
    >>> WeisfeilerLehman(1, normalized=False)([water, peroxide])
    array([[10., 10.],
           [10., 16.]])
    """

    iterations: int = 3
    normalized: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("iterations", integer_at_least(self.iterations, 0, "WeisfeilerLehman: iterations"))

    def _conditional(self) -> str:
        return ""

    def _check(self, X: Any, name: str = "X") -> Objects:
        graphs = super()._check(X, name)
        for i, one in enumerate(graphs):
            if not isinstance(one, Graph) or not len(one):
                raise ValueError(
                    f"{name}[{i}] must be a Graph with at least one node, got {type(one).__name__}"
                )
        return graphs

    def counts(self, graph: Graph) -> Counter[Hashable]:
        """How often each neighbourhood occurs in the graph."""
        neighbours: list[list[tuple[int, str]]] = [[] for _ in graph.labels]
        for i, j, *label in graph.edges:
            neighbours[i].append((j, repr(label)))
            neighbours[j].append((i, repr(label)))
        labels = [_digest(repr(label)) for label in graph.labels]
        found = Counter[Hashable]((0, label) for label in labels)
        for h in range(1, self.iterations + 1):
            labels = [
                _digest(labels[i] + "|" + ",".join(sorted(edge + labels[j] for j, edge in around)))
                for i, around in enumerate(neighbours)
            ]
            found.update((h, label) for label in labels)
        return found

    def compare(self, x: Any, z: Any) -> float:
        return float(self._matrix([x], [z])[0, 0])

    def _matrix(self, X: Any, Z: Any) -> Array:
        left = self._all_counts(X)
        right = left if Z is None else self._all_counts(Z)
        K = np.array([[_inner(a, b) for b in right] for a in left], dtype=np.float64)
        if self.normalized:
            K /= np.sqrt(np.outer([_inner(a, a) for a in left], [_inner(b, b) for b in right]))
        return K

    def _diag(self, X: Any) -> Array:
        if self.normalized:
            return np.ones(len(X))
        return np.array([_inner(c, c) for c in self._all_counts(X)], dtype=np.float64)

    def _all_counts(self, graphs: list[Any]) -> list[Counter[Hashable]]:
        key = ("neighbourhoods", self.iterations)
        found: list[Counter[Hashable]] = remembered(
            graphs, key, lambda graphs: list(map(self.counts, graphs))
        )
        return found


def _plain(label: Any) -> Any:
    """A label of NumPy's as Python's own, so that both are the same label."""
    return label.item() if isinstance(label, np.generic) else label


def _inner(a: Counter[Hashable], b: Counter[Hashable]) -> int:
    if len(b) < len(a):
        a, b = b, a
    return sum(count * b[key] for key, count in a.items() if key in b)


def _digest(text: str) -> str:
    """A short name for a neighbourhood, the same in every process."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
