"""One strip, for the likelihood: from the moments of its blocks to determinant, energy and second moments.

With P_k the precision of group k after the groups before it were eliminated, E_k the coupling to the next one:

    P_0 = D_0,   X_k = P_k^-1,   F_k = E_k X_k,   P_(k+1) = D_(k+1) - F_k E_k',   r_(k+1) = b_(k+1) - F_k r_k
    S_k = X_k + F_k' S_(k+1) F_k,   Cov(x_(k+1), x_k) = -S_(k+1) F_k,   m_k = X_k r_k - F_k' m_(k+1)

forwards and backwards (Takahashi, Fagan and Chin, 1973: the inverse where the factor has entries). Nearly all of it is
products of matrices of 50 to 100 rows. float64: across a hole, single precision loses the long waves.
"""

from __future__ import annotations

import numpy as np

from gp_core.compiled import compiled
from gp_core.grid.markov.normal_equations import NEIGHBOURS, add_blocks, neighbour
from gp_core.grid.markov.splines import ORDER
from gp_core.grid.symmetric import factorise, invert, padded


@compiled(fastmath={"contract"})
def weigh_strip(  # type: ignore[no-untyped-def]
    weights, heights, gain, left, first_block, last_block, first, arriving, leaving, coupling, rows, moments
):
    """What the blocks of columns first_block ... last_block - 1 say together, by the chain; for the likelihood.

    Returns log |P|, NaN on failure, and B' P^-1 B (K, K). moments: room for sums over the groups of
    E x x' (4, n, n) under the posterior of the last right-hand side: of the first group, of all others, of all but the
    last one, and of neighbours (the later one in the rows); or (0, n, n) where they are not wanted.
    """
    n = first.shape[0]
    width = n // rows
    stencil, right = _assemble(weights, heights, gain, left, width, first_block, last_block, rows)
    log_determinant, X, F, r = _forward(stencil, right, first, arriving, leaving, coupling, rows)
    sides = heights.shape[0]
    energy = np.zeros((sides, sides))
    groups = X.shape[0]
    if np.isnan(log_determinant):
        return log_determinant, energy
    for k in range(groups):
        energy += np.dot(r[k].T.copy(), np.dot(X[k], r[k]))
    if moments.shape[0] == 0:
        return log_determinant, energy
    S = X[groups - 1].copy()
    cross, update = np.empty((n, n)), np.empty((n, n))
    m = np.dot(X[groups - 1], r[groups - 1])
    for k in range(groups - 1, -1, -1):
        if k < groups - 1:
            later = m[:, sides - 1].copy()
            m = _backward(X[k], F[k], r[k], S, cross, update, m)
            now = m[:, sides - 1]
            for p in range(n):
                for q in range(n):
                    moments[3, p, q] += later[p] * now[q] - cross[p, q]
        now = m[:, sides - 1]
        for p in range(n):
            for q in range(n):
                both = S[p, q] + now[p] * now[q]
                moments[0 if k == 0 else 1, p, q] += both
                if k < groups - 1:
                    moments[2, p, q] += both
    return log_determinant, energy


@compiled(fastmath={"contract"})
def _forward(stencil, right, first, arriving, leaving, coupling, rows):  # type: ignore[no-untyped-def]
    """log |P| (NaN on failure), and X (G, n, n), F (G, n, n), r (G, n, K) of every group."""
    n = first.shape[0]
    width = n // rows
    groups = stencil.shape[0] // rows
    sides = right.shape[0]
    X, F = np.empty((groups, n, n)), np.empty((groups, n, n))
    r = np.empty((groups, n, sides))
    E, update = np.empty((n, n)), np.zeros((n, n))
    P = np.zeros((n, padded(n)))
    room, inverse = np.empty_like(P), np.empty_like(P)
    log_determinant = 0.0
    for k in range(groups):
        own = first if k == 0 else arriving
        for p in range(n):
            for q in range(p, n):
                P[p, q] = own[p, q] - update[p, q]
        if k < groups - 1:
            for p in range(n):
                for q in range(p, n):
                    P[p, q] += leaving[p, q]
            E[:] = coupling
        _fill(stencil, k * rows, rows, width, P, E)
        if not factorise(P):
            return np.nan, X, F, r
        for p in range(n):
            log_determinant += 2.0 * np.log(P[p, p])
        invert(P, room, inverse)
        for p in range(n):
            for q in range(p + 1):
                X[k, p, q] = inverse[p, q]
                X[k, q, p] = inverse[p, q]
            for side in range(sides):
                r[k, p, side] = right[side, k * rows + p // width, p % width]
        if k > 0:
            r[k] -= np.dot(F[k - 1], r[k - 1])
        if k < groups - 1:
            np.dot(E, X[k], F[k])
            np.dot(F[k], E.T, update)
    return log_determinant, X, F, r


@compiled()
def _backward(X, F, r, S, cross, update, m):  # type: ignore[no-untyped-def]
    """From a group to the one before it: S and the mean, which is returned; cross is minus their covariance."""
    np.dot(S, F, cross)
    np.dot(F.T, cross, update)
    n = X.shape[0]
    for p in range(n):
        for q in range(n):
            S[p, q] = X[p, q] + update[p, q]
    return np.dot(X, r) - np.dot(F.T, m)


@compiled()
def _assemble(weights, heights, gain, left, width, first, last, rows):  # type: ignore[no-untyped-def]
    """W' R^-1 W (n_y, width, 13) and W' R^-1 z (K, n_y, width), n_y a multiple of `rows`.

    first, last: columns of blocks, first ... last - 1, of which those count whose coefficients all lie in the strip
    """
    n_y = -(-(weights.shape[0] + ORDER - 1) // rows) * rows
    stencil = np.zeros((n_y, width, NEIGHBOURS))
    right = np.zeros((heights.shape[0], n_y, width))
    first, last = max(left, first), min(left + width - ORDER + 1, last)
    add_blocks(weights, heights, gain, first, last, 0, left, 0, n_y, 0, width, stencil, right)
    return stencil, right


@compiled()
def _fill(stencil, row, rows, width, P, E):  # type: ignore[no-untyped-def]
    """Add the data of rows row ... row + rows - 1 to the upper triangle of P, and between them and the next to E."""
    for a in range(rows):
        for i in range(width):
            values = stencil[row + a, i]
            p = a * width + i
            for dy in range(ORDER):
                for dx in range(0 if dy == 0 else 1 - ORDER, ORDER):
                    if 0 <= i + dx < width:
                        value = values[neighbour(dy, dx)]
                        if a + dy < rows:
                            P[p, (a + dy) * width + i + dx] += value
                        else:
                            E[(a + dy - rows) * width + i + dx, p] += value
