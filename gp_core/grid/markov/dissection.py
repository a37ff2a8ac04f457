"""Nested dissection of the lattice of coefficients: boxes that are cut in two by separators, and who sees whom.

A lattice of leaves of 7 x 7 coefficients, with two lines of coefficients between leaves, is halved again and again. A
*separator* is the two lines between the halves, and, sparsely, some coefficients of the halves a little away from it:
two lines hold height and slope, and what else a kernel carries across them is smooth and needs few coefficients. A
box's *pivots* are its separator, or all coefficients of a leaf; its *border* is the part of the separators around it
that it touches. Given its border, what is in a box and what is outside are taken as independent (Vecchia, 1988; for
this order of elimination, Schaefer, Katzfuss and Owhadi, 2021).

Boxes of one size and with borders on as many sides have the same prior, mirrored perhaps: `Shape`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np

Indices = np.ndarray[Any, np.dtype[np.int64]]

LEAF: Final = 7
"""Coefficients of a leaf along each axis."""
LINES: Final = 2
"""Lines of a separator: as far as two coefficients can meet in a block."""
PERIOD: Final = LEAF + LINES

Sparse = tuple[tuple[int, tuple[int, ...]], ...]
"""The sparse coefficients of a separator, on either side: so many coefficients away from its lines, at these places of
each leaf that it passes (the same from both ends of the leaf)."""


@dataclass(frozen=True)
class Shape:
    """A box up to mirroring: along an axis with one border, it is at the far end.

    leaves: (y, x) that the box is long
    borders: (y, x) number of sides with a border
    """

    leaves: tuple[int, int]
    borders: tuple[int, int]
    sparse: Sparse

    @property
    def size(self) -> tuple[int, int]:
        """(y, x) coefficients."""
        return self.leaves[0] * PERIOD - LINES, self.leaves[1] * PERIOD - LINES

    @property
    def axis(self) -> int | None:
        """Axis along which the box is cut in two: 0 for y, 1 for x; None for a leaf."""
        if self.leaves == (1, 1):
            return None
        return 1 if self.leaves[1] >= self.leaves[0] else 0

    @property
    def first_leaves(self) -> int:
        """Leaves of the first half along the axis of the cut."""
        axis = self.axis
        assert axis is not None
        return -(-self.leaves[axis] // 2)


@cache
def shape_nodes(shape: Shape) -> tuple[Indices, Indices]:
    """(p, 2) pivots and (m, 2) border of a box, as (y, x) from its first coefficient."""
    sides = [(axis, end) for axis in (0, 1) for end in (0, 1) if shape.borders[axis] > 1 - end]
    border = [_side(shape, axis, end) for axis, end in sides]
    for end_y in [end for axis, end in sides if axis == 0]:
        for end_x in [end for axis, end in sides if axis == 1]:
            lines = [
                range(size, size + LINES) if end else range(-LINES, 0)
                for end, size in zip((end_y, end_x), shape.size, strict=True)
            ]
            border.append(np.array([(y, x) for y in lines[0] for x in lines[1]]))
    # Sparse coefficients of two sides can be the same.
    outside = list(dict.fromkeys((int(y), int(x)) for part in border for y, x in part))
    taken = set(outside)
    inside = dict.fromkeys((int(y), int(x)) for y, x in _candidates(shape))
    pivots = [at for at in inside if at not in taken]
    return np.array(pivots, dtype=np.int64), np.array(outside, dtype=np.int64).reshape(-1, 2)


def _candidates(shape: Shape) -> Indices:
    """Pivots, and those coefficients among them that may have been a separator's before."""
    axis = shape.axis
    if axis is None:
        return np.stack(np.divmod(np.arange(LEAF * LEAF), LEAF), axis=-1)
    cut = shape.first_leaves * PERIOD - LINES
    length = shape.size[1 - axis]
    lines = [_line(axis, cut + d, np.arange(length)) for d in range(LINES)]
    for apart, places in shape.sparse:
        lines += [_line(axis, at, _every(length, places)) for at in (cut - 1 - apart, cut + LINES + apart)]
    return np.concatenate(lines)


def _side(shape: Shape, axis: int, end: int) -> Indices:
    """The border along one side: two lines, and the sparse coefficients inside and outside."""
    size, length = shape.size[axis], shape.size[1 - axis]
    # by distance from the first line outside the box
    lines = [(d, np.arange(length)) for d in range(LINES)]
    for apart, places in shape.sparse:
        lines += [(d, _every(length, places)) for d in (-1 - apart, LINES + apart)]
    return np.concatenate([_line(axis, size + d if end else -1 - d, along) for d, along in lines])


def _every(length: int, places: tuple[int, ...]) -> Indices:
    along = np.arange(length)
    return along[np.isin(along % PERIOD, places)]


def _line(axis: int, at: int, along: Indices) -> Indices:
    across = np.full(along.size, at)
    return np.stack([across, along] if axis == 0 else [along, across], axis=-1)


@dataclass
class Box:
    """A box in its place.

    first: (y, x) of its first coefficient
    mirrored: (y, x) whether its shape is seen from the other end
    pivots, border: indices y n_x + x of the coefficients, in the order of the shape
    places: (m,) of the border among pivots and border of the parent
    """

    shape: Shape
    first: tuple[int, int]
    mirrored: tuple[bool, bool]
    depth: int
    parent: int
    pivots: Indices = field(repr=False)
    border: Indices = field(repr=False)
    places: Indices = field(repr=False)
    children: list[int] = field(default_factory=list)


def leaves_for(coefficients: int) -> int:
    """Leaves along an axis that hold so many coefficients."""
    return max(-(-(coefficients + LINES) // PERIOD), 1)


def dissect(leaves: tuple[int, int], sparse: Sparse) -> list[Box]:
    """The boxes of a lattice of so many leaves (y, x), parents before children."""
    n_x = leaves[1] * PERIOD - LINES
    place = np.full((leaves[0] * PERIOD - LINES) * n_x, -1, dtype=np.int64)
    boxes: list[Box] = []

    def add(
        shape: Shape, first: tuple[int, int], mirrored: tuple[bool, bool], depth: int, parent: int
    ) -> None:
        pivots, border = (
            _in_place(nodes, shape, first, mirrored) @ np.array([n_x, 1]) for nodes in shape_nodes(shape)
        )
        places = np.zeros(0, dtype=np.int64)
        if parent >= 0:
            front = np.concatenate([boxes[parent].pivots, boxes[parent].border])
            place[front] = np.arange(front.size)
            places = place[border]
            place[front] = -1
            assert (places >= 0).all()
            boxes[parent].children.append(len(boxes))
        own = len(boxes)
        boxes.append(Box(shape, first, mirrored, depth, parent, pivots, border, places))
        axis = shape.axis
        if axis is None:
            return
        half = shape.first_leaves
        rest = shape.leaves[axis] - half
        n = shape.borders[axis]
        for second in (False, True):
            # A border at both ends, or at the far end: seen as the parent is. Only a lattice without borders along
            # the axis has a second half with one at the near end, and that half is mirrored.
            borders = _replaced(shape.borders, axis, (n + 1 if n < 2 else 2) if second else max(n, 1))
            flipped = mirrored[axis] != (second and n == 0)
            count = rest if second else half
            start = half * PERIOD if second else 0
            if mirrored[axis]:
                start = shape.size[axis] - start - (count * PERIOD - LINES)
            add(
                Shape(_replaced(shape.leaves, axis, count), borders, sparse),
                _replaced(first, axis, first[axis] + start),
                _replaced(mirrored, axis, flipped),
                depth + 1,
                own,
            )

    add(Shape(leaves, (0, 0), sparse), (0, 0), (False, False), 0, -1)
    return boxes


def _in_place(nodes: Indices, shape: Shape, first: tuple[int, int], mirrored: tuple[bool, bool]) -> Indices:
    out = nodes.copy()
    for axis in (0, 1):
        if mirrored[axis]:
            out[:, axis] = shape.size[axis] - 1 - out[:, axis]
        out[:, axis] += first[axis]
    return out


def _replaced(pair: tuple[Any, Any], axis: int, value: Any) -> tuple[Any, Any]:
    return (value, pair[1]) if axis == 0 else (pair[0], value)
