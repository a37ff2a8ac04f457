"""One strip: from the moments of its blocks to the mean of its coefficients and the covariances of near ones.

With P_k the precision of group k after the groups before it were eliminated, E_k the coupling to the next one:

    P_0 = D_0,   X_k = P_k^-1,   F_k = E_k X_k,   P_(k+1) = D_(k+1) - F_k E_k',   r_(k+1) = b_(k+1) - F_k r_k
    S_k = X_k + F_k' S_(k+1) F_k,   Cov(x_(k+1), x_k) = -S_(k+1) F_k,   m_k = X_k r_k - F_k' m_(k+1)

forwards and backwards (Takahashi, Fagan and Chin, 1973: the inverse where the factor has entries). Nearly all of it is
products of matrices of 50 to 100 rows. float64: across a hole, single precision loses the long waves.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gp_core.compiled import compiled
from gp_core.grid.markov.splines import ORDER, PIECES, products
from gp_core.grid.symmetric import factorise, invert, padded

NEIGHBOURS: Final = 13
"""Pairs of coefficients that meet in a block, seen from the lower one: (dy, dx) with dy = 0, dx = 0 ... 2, and with
dy = 1 and 2, dx = -2 ... 2 (`neighbour`)."""
_PAIRS: Final = np.array([(p, q) for p in range(ORDER) for q in range(p, ORDER)])
_PRODUCTS: Final = np.ascontiguousarray(products()[_PAIRS[:, 0], _PAIRS[:, 1]])
"""(6, 5) monomial coefficients of the products of splines p <= q."""
_PAIR_OF: Final = np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])
_PIECES: Final = np.ascontiguousarray(PIECES)


@compiled()
def neighbour(dy, dx):  # type: ignore[no-untyped-def]
    """Place of the neighbour (dy, dx) among the 13."""
    return dx if dy == 0 else 5 * dy + dx


@compiled(fastmath={"contract"})
def solve_strip(  # type: ignore[no-untyped-def]
    weights,
    heights,
    gain,
    left,
    halo,
    first,
    arriving,
    leaving,
    coupling,
    rows,
    means,
    covariances,
):
    """Means and covariances of the coefficients of a strip's blocks; False if a matrix was not positive definite.

    weights: (J, I, 7, 7) and heights: (K, J, I, 6, 6), moments of the window, each to be taken times `gain`
    left: first column of coefficients of the strip; halo: columns before those that are kept
    first, arriving, leaving, coupling: (n, n) of the chain, `rows` rows to a group
    means: (K, J + 2, C) and covariances: (J + 2, C, 13), to be written
    """
    n = first.shape[0]
    width = n // rows
    stencil, right = _assemble(weights, heights, gain, left, width, left, left + width, rows)
    log_determinant, X, F, r = _forward(stencil, right, first, arriving, leaving, coupling, rows)
    if np.isnan(log_determinant):
        return False
    groups = X.shape[0]
    S = X[groups - 1].copy()
    cross, update = np.empty((n, n)), np.empty((n, n))
    m = np.dot(X[groups - 1], r[groups - 1])
    for k in range(groups - 1, -1, -1):
        if k < groups - 1:
            m = _backward(X[k], F[k], r[k], S, cross, update, m)
        _keep(k, rows, width, halo, S, cross, m, means, covariances)
    return True


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


@compiled(fastmath={"contract"})
def _assemble(weights, heights, gain, left, width, first, last, rows):  # type: ignore[no-untyped-def]
    """W' R^-1 W (n_y, width, 13) and W' R^-1 z (K, n_y, width), n_y a multiple of `rows`.

    first, last: columns of blocks, first ... last - 1, of which those count whose coefficients all lie in the strip
    """
    sides = heights.shape[0]
    n_y = -(-(weights.shape[0] + ORDER - 1) // rows) * rows
    stencil = np.zeros((n_y, width, NEIGHBOURS))
    right = np.zeros((sides, n_y, width))
    half = np.empty((6, 5))
    T = np.empty((6, 6))
    for j in range(weights.shape[0]):
        for b in range(max(left, first, 0), min(left + width - ORDER + 1, last, weights.shape[1])):
            M = weights[j, b]
            if M[0, 0] == 0.0:
                continue
            i = b - left
            for p in range(6):
                for c in range(5):
                    total = 0.0
                    for a in range(5):
                        total += _PRODUCTS[p, a] * M[a, c]
                    half[p, c] = gain * total
            for p in range(6):
                for q in range(6):
                    total = 0.0
                    for c in range(5):
                        total += half[p, c] * _PRODUCTS[q, c]
                    T[p, q] = total
            for p_y in range(ORDER):
                for q_y in range(p_y, ORDER):
                    y = _PAIR_OF[p_y, q_y]
                    for p_x in range(ORDER):
                        for q_x in range(p_x if q_y == p_y else 0, ORDER):
                            at = neighbour(q_y - p_y, q_x - p_x)
                            stencil[j + p_y, i + p_x, at] += T[y, _PAIR_OF[p_x, q_x]]
            for m in range(sides):
                H = heights[m, j, b]
                for p_y in range(ORDER):
                    for p_x in range(ORDER):
                        total = 0.0
                        for a in range(ORDER):
                            for c in range(ORDER):
                                total += _PIECES[p_y, a] * _PIECES[p_x, c] * H[a, c]
                        right[m, j + p_y, i + p_x] += gain * total
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


@compiled()
def _keep(k, rows, width, halo, S, cross, m, means, covariances):  # type: ignore[no-untyped-def]
    """Write the means of group k, and the covariances of its coefficients with their neighbours."""
    n_y, n_x = covariances.shape[:2]
    for a in range(rows):
        j = k * rows + a
        if j >= n_y:
            break
        for g in range(n_x):
            i = halo + g
            p = a * width + i
            for side in range(means.shape[0]):
                means[side, j, g] = m[p, side]
            for dy in range(ORDER):
                for dx in range(0 if dy == 0 else 1 - ORDER, ORDER):
                    value = np.nan
                    if a + dy < rows:
                        value = S[p, (a + dy) * width + i + dx]
                    elif j + dy < n_y:
                        value = -cross[(a + dy - rows) * width + i + dx, p]
                    covariances[j, g, neighbour(dy, dx)] = value
