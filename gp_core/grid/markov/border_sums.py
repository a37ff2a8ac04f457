"""Addition of what a half left on its border, a lower triangle L, to the front of the whole box.

runs: (runs, 3) of the half, as in `Plan`: first in its border, first in the front, length
p: pivots of the whole box, the first of its front
"""

from __future__ import annotations

from gp_core.compiled import compiled
from gp_core.grid.markov.flat_matrices import SHORT, triangle_row


@compiled()
def add_to_pivots(runs, p, L, P, E):  # type: ignore[no-untyped-def]
    """Add the lower triangle L of a half to the front: to the upper triangle of P, and to E."""
    for t in range(runs.shape[0]):
        from_b, to_b, length_b = runs[t]
        if to_b >= p:
            continue
        for s in range(runs.shape[0]):
            from_a, to_a, length_a = runs[s]
            if to_a < to_b:
                continue
            if to_a >= p:
                if from_a > from_b and length_b < SHORT:
                    for a in range(length_a):
                        first = (from_a + a) * (from_a + a + 1) // 2 + from_b
                        for b in range(length_b):
                            E[to_a - p + a, to_b + b] += L[first + b]
                elif from_a > from_b:
                    for a in range(length_a):
                        row, add = E[to_a - p + a, to_b:], triangle_row(L, from_a + a)[from_b:]
                        for b in range(length_b):
                            row[b] += add[b]
                else:
                    for b in range(length_b):
                        first = (from_b + b) * (from_b + b + 1) // 2 + from_a
                        for a in range(length_a):
                            E[to_a - p + a, to_b + b] += L[first + a]
            elif from_b > from_a:
                for b in range(length_b):
                    row, add = P[to_b + b, to_a:], triangle_row(L, from_b + b)[from_a:]
                    for a in range(length_a):
                        row[a] += add[a]
            else:
                for a in range(length_a):
                    add = triangle_row(L, from_a + a)[from_b:]
                    for b in range(a + 1 if s == t else length_b):
                        P[to_b + b, to_a + a] += add[b]


@compiled()
def add_to_border(runs, p, L, out):  # type: ignore[no-untyped-def]
    """Add the lower triangle L of a half to that of the border of the whole."""
    for s in range(runs.shape[0]):
        from_a, to_a, length_a = runs[s]
        if to_a < p:
            continue
        for t in range(runs.shape[0]):
            from_b, to_b, length_b = runs[t]
            if to_b < p or to_a < to_b:
                continue
            if from_a > from_b and length_b < SHORT:
                for a in range(length_a):
                    first = (from_a + a) * (from_a + a + 1) // 2 + from_b
                    to = (to_a - p + a) * (to_a - p + a + 1) // 2 + to_b - p
                    for b in range(length_b):
                        out[to + b] += L[first + b]
            elif from_a >= from_b:
                for a in range(length_a):
                    row, add = (
                        triangle_row(out, to_a - p + a)[to_b - p :],
                        triangle_row(L, from_a + a)[from_b:],
                    )
                    for b in range(a + 1 if s == t else length_b):
                        row[b] += add[b]
            else:
                for b in range(length_b):
                    first = (from_b + b) * (from_b + b + 1) // 2 + from_a
                    for a in range(length_a):
                        row_first = (to_a - p + a) * (to_a - p + a + 1) // 2
                        out[row_first + to_b - p + b] += L[first + a]
