"""The ground under a cloud, roughly: planes through the lowest points, without what stands or hangs above them.

1. The lowest supported point of each cell is a seed.
2. Ground is nowhere steeper than a given slope. So a seed that is higher than another one by more than this slope
   allows over the distance between them is no ground, but a crown, a stem or a roof (Vosselman, 2000). The lower
   envelope of the cones above all seeds is found in two passes over the cells, as a distance transform is.
3. A plane through the seeds that are left around each cell is the trend there.

Heights above the trend have no slope: what is lowest in a cell of any size can be told by them.
"""

from __future__ import annotations

import numpy as np

from gp_core.compiled import compiled
from gpgmap_ros.arrays import Array

CELLS_ACROSS = 60.0
"""The cloud's extent in cells of the trend, at most."""
POINTS_PER_CELL = 4.0
"""Points in the mean, for each that a seed needs, that a square of cells is fine enough for."""
MIN_EDGE = 1e-3
MIN_SEEDS, MAX_REACH = 6, 4
"""Seeds of a plane, and how many cells around its own they are looked for in."""
REFITS = 3
"""Times that a plane is fitted again, without the seeds too far above it."""


def height_above_trend(xyz: Array, tolerance: float, support: int, slope: float) -> Array:
    """(N,) height of points (N, 3) above the ground around them.

    tolerance, support: a seed has so many points, itself included, within this height above it
    slope: of the steepest ground
    """
    if not len(xyz):
        return np.empty(0)
    low, high = xyz[:, :2].min(axis=0), xyz[:, :2].max(axis=0)
    across = min(CELLS_ACROSS, np.sqrt(len(xyz) / (POINTS_PER_CELL * support)))
    edge = max(float((high - low).max()) / max(across, 1.0), MIN_EDGE)
    low = np.floor(low / edge) * edge  # the same cells in every cloud
    shape = np.floor((high - low) / edge).astype(np.int64) + 1
    cells = np.floor((xyz[:, :2] - low) / edge).astype(np.int64)
    np.clip(cells, 0, shape - 1, out=cells)
    flat = cells[:, 1] * shape[0] + cells[:, 0]
    starts = np.concatenate([[0], np.cumsum(np.bincount(flat, minlength=int(shape.prod())))])
    order = np.argsort(flat, kind="stable")
    seeds = _find_seeds(xyz, order, starts, tolerance, support)
    rows, columns = int(shape[1]), int(shape[0])
    nearest = _envelope(seeds, rows, columns, edge, low, slope)
    grounded = _is_ground(seeds, nearest, rows, columns, slope, tolerance)
    planes = _fit_planes(seeds, grounded, nearest, rows, columns, edge, low, slope, tolerance)
    out: Array = xyz[:, 2] - np.sum(planes[flat] * np.column_stack([np.ones(len(xyz)), xyz[:, :2]]), axis=1)
    return out


@compiled()
def _find_seeds(xyz, order, starts, tolerance, support):  # type: ignore[no-untyped-def]
    """(C, 3) the lowest supported point of each cell; NaN in empty ones."""
    seeds = np.full((starts.size - 1, 3), np.nan)
    for cell in range(starts.size - 1):
        here = order[starts[cell] : starts[cell + 1]]
        if here.size == 0:
            continue
        here = here[np.argsort(xyz[here, 2])]
        chosen = here[0]
        for n in range(here.size - support + 1):
            if xyz[here[n + support - 1], 2] <= xyz[here[n], 2] + tolerance:
                chosen = here[n]
                break
        seeds[cell] = xyz[chosen]
    return seeds


@compiled()
def _envelope(seeds, rows, columns, edge, low, slope):  # type: ignore[no-untyped-def]
    """(C,) the seed whose cone is lowest over the middle of each cell."""
    best = np.full(rows * columns, -1)
    value = np.full(rows * columns, np.inf)
    for cell in range(rows * columns):
        if not np.isnan(seeds[cell, 2]):
            x, y = low[0] + (cell % columns + 0.5) * edge, low[1] + (cell // columns + 0.5) * edge
            best[cell] = cell
            value[cell] = seeds[cell, 2] + slope * np.hypot(x - seeds[cell, 0], y - seeds[cell, 1])
    for sweep in range(4):
        forward = sweep % 2 == 0
        for n in range(rows * columns):
            cell = n if forward else rows * columns - 1 - n
            i, j = cell // columns, cell % columns
            x, y = low[0] + (j + 0.5) * edge, low[1] + (i + 0.5) * edge
            for di in range(-1, 2):
                for dj in range(-1, 2):
                    if not (0 <= i + di < rows and 0 <= j + dj < columns):
                        continue
                    seed = best[(i + di) * columns + j + dj]
                    if seed < 0:
                        continue
                    cone = seeds[seed, 2] + slope * np.hypot(x - seeds[seed, 0], y - seeds[seed, 1])
                    if cone < value[cell]:
                        best[cell], value[cell] = seed, cone
    return best


@compiled()
def _is_ground(seeds, nearest, rows, columns, slope, tolerance):  # type: ignore[no-untyped-def]
    """(C,) whether the seed of a cell is under the cones of all others."""
    out = np.zeros(rows * columns, dtype=np.bool_)
    for cell in range(rows * columns):
        if np.isnan(seeds[cell, 2]):
            continue
        out[cell] = True
        i, j = cell // columns, cell % columns
        for di in range(-1, 2):
            for dj in range(-1, 2):
                if not (0 <= i + di < rows and 0 <= j + dj < columns):
                    continue
                other = nearest[(i + di) * columns + j + dj]
                distance = np.hypot(seeds[cell, 0] - seeds[other, 0], seeds[cell, 1] - seeds[other, 1])
                if seeds[cell, 2] > seeds[other, 2] + slope * distance + tolerance:
                    out[cell] = False
    return out


@compiled()
def _fit_planes(seeds, grounded, nearest, rows, columns, edge, low, slope, tolerance):  # type: ignore[no-untyped-def]
    """(C, 3) height at x = y = 0 and slopes of the plane through the seeds around each cell."""
    planes = np.zeros((rows * columns, 3))
    chosen = np.empty((2 * MAX_REACH + 1) ** 2, dtype=np.int64)
    for cell in range(rows * columns):
        if np.isnan(seeds[cell, 2]):
            continue
        i, j = cell // columns, cell % columns
        count = 0
        for reach in range(1, MAX_REACH + 1):
            count = 0
            for k in range(max(i - reach, 0), min(i + reach + 1, rows)):
                for m in range(max(j - reach, 0), min(j + reach + 1, columns)):
                    if grounded[k * columns + m]:
                        chosen[count] = k * columns + m
                        count += 1
            if count >= MIN_SEEDS:
                break
        x, y = low[0] + (j + 0.5) * edge, low[1] + (i + 0.5) * edge
        if count == 0:
            planes[cell, 0] = seeds[nearest[cell], 2]
            continue
        a, b, c = _fit_plane(seeds, chosen[:count], x, y, edge, tolerance)
        steep = max(np.hypot(b, c) / slope, 1.0)
        planes[cell, 1], planes[cell, 2] = b / steep, c / steep
        planes[cell, 0] = a - planes[cell, 1] * x - planes[cell, 2] * y
    return planes


@compiled()
def _fit_plane(seeds, chosen, x, y, edge, tolerance):  # type: ignore[no-untyped-def]
    """Height at (x, y) and slopes; slopes that the seeds do not show are zero, and seeds far above it do not count."""
    use = np.ones(chosen.size, dtype=np.bool_)
    solution = np.zeros(3)
    for _ in range(1 + REFITS):
        A, b = np.zeros((3, 3)), np.zeros(3)
        A[0, 0] = 1e-9
        A[1, 1] = A[2, 2] = 0.01 * edge**2
        for n in range(chosen.size):
            if not use[n]:
                continue
            row = np.array([1.0, seeds[chosen[n], 0] - x, seeds[chosen[n], 1] - y])
            for p in range(3):
                b[p] += row[p] * seeds[chosen[n], 2]
                for q in range(3):
                    A[p, q] += row[p] * row[q]
        solution[:] = np.linalg.solve(A, b)
        changed = False
        for n in range(chosen.size):
            seed = seeds[chosen[n]]
            above = seed[2] - solution[0] - solution[1] * (seed[0] - x) - solution[2] * (seed[1] - y)
            keep = above <= tolerance
            changed = changed or keep != use[n]
            use[n] = keep
        if not changed or not use.any():
            break
    return solution[0], solution[1], solution[2]
