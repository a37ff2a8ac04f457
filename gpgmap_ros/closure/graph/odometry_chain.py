"""Errors of odometry along the way between submaps: how large they may be, and where on the way they arose.

The correction C of a drive takes poses by odometry, O, to the map: X = C O. On each piece ds of the way, odometry errs
by a turn w and a step v, independent of those before, with variances per metre Q_w and Q_v. About a fixed point,

    Log(C_i^-1 C_j) = sum A e,    A = [I 0; [p] I],  e = (w, v),         S_ij = sum A Q A' ds

with p the position on the way: a turn early on moves all that follows sideways. S_ij is the covariance of the odometry
between two submaps in the pose graph. Once the graph has found the corrections at both, the likeliest course of the
correction between them is the conditional mean of the same model,

    C(s) = C_i Exp(S_is S_ij^-1 Log(C_i^-1 C_j)),

which is what an optimisation over all poses of the robot would find, for the price of one over submaps.

A submap stands for the middle of the way on which it was made: its map is the mean of what was seen on all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array
from gpgmap_ros.closure.graph import lie
from gpgmap_ros.closure.graph.drift import MIN_PATH, Drift
from gpgmap_ros.closure.graph.keyframes import SubmapNode

STANDING = 1e-6
"""Metres of way that each recorded pose counts for at least, so that a robot that turns on the spot has a way too."""
CROSS = np.zeros((3, 3, 3))
"""CROSS[i, a, j] p_a w_j is component i of the cross product of p and w."""
CROSS[0, 1, 2] = CROSS[1, 2, 0] = CROSS[2, 0, 1] = 1.0
CROSS[0, 2, 1] = CROSS[1, 0, 2] = CROSS[2, 1, 0] = -1.0


@dataclass(frozen=True, eq=False)
class OdometryChain:
    """The way through the submaps of a drive, in order.

    stamps: (M,) nanoseconds, ascending, of poses on the way; middles: (N,) which of them are the middles of the submaps
    origins: (N, 3) positions there
    moments: (M, 13) length of the way up to each pose, its first and its second moments, about the origin of the last
    submap whose middle lies before
    """

    stamps: NDArray[np.int64]
    middles: NDArray[np.intp]
    origins: Array
    moments: Array

    @classmethod
    def of(cls, nodes: Sequence[SubmapNode]) -> OdometryChain:
        """nodes: consecutive submaps of one drive"""
        stamps: list[NDArray[np.int64]] = []
        positions: list[Array] = []
        middles: list[int] = []
        count = 0
        for node in nodes:
            way, when = node_way(node)
            if (
                stamps and when[0] <= stamps[-1][-1]
            ):  # clouds that overtook each other: the way goes on after them
                later = when > stamps[-1][-1]
                way, when = (way[later], when[later]) if later.any() else (way[-1:], stamps[-1][-1:] + 1)
            steps = np.linalg.norm(np.diff(way, axis=0), axis=1)
            half = np.searchsorted(np.cumsum(steps), 0.5 * steps.sum()) if len(steps) else 0
            middles.append(count + int(half))
            stamps.append(when)
            positions.append(way)
            count += len(when)
        p, at = np.concatenate(positions), np.array(middles, dtype=np.intp)
        return cls(np.concatenate(stamps), at, p[at], cumulative_moments(p, at))

    def covariance(
        self, T_odom_before: Array, T_odom_node: Array, drift: Drift, variance_factor: float = 1.0
    ) -> Array:
        """(6, 6) of the odometry from the first submap to the second, as that of an edge of the pose graph.

        variance_factor: by which the odometry errs more than its drift says
        """
        begin, end = self.middles[:2]
        moments = self.moments[end] - self.moments[begin]
        moments[0] = max(moments[0], MIN_PATH)
        S = variance_factor * spread(moments, *drift.rates(moments[0]))
        R, a = T_odom_before[:3, :3], T_odom_node[:3, 3] - self.origins[0]
        J = np.zeros((6, 6))
        J[:3, 3:], J[3:, :3] = R.T, R.T
        J[:3, :3] = -R.T @ lie.hat(a[None])[0]
        out = J @ S @ J.T
        return np.asarray(0.5 * (out + out.T))

    def interpolate(self, corrections: Array, stamps: NDArray[np.int64], drift: Drift) -> Array:
        """(K, 4, 4) corrections at stamps (K,), from those (N, 4, 4) of the submaps; constant before the first middle
        and after the last."""
        when = self.stamps[self.middles]
        leg = np.clip(np.searchsorted(when, stamps, side="right") - 1, 0, len(when) - 1)
        out = np.asarray(corrections[leg])
        inside = (leg + 1 < len(when)) & (stamps > when[0])
        if not inside.any():
            return out
        legs, at = np.unique(leg[inside], return_inverse=True)
        shift = np.tile(np.eye(4), (len(legs), 1, 1))
        shift[:, :3, 3] = self.origins[legs]
        start = corrections[legs] @ shift
        delta = lie.log(lie.inverses(start) @ corrections[legs + 1] @ shift)
        begin, end = self.moments[self.middles[legs]], self.moments[self.middles[legs + 1]]
        turn, step = drift.rates(end[:, 0] - begin[:, 0])
        weights = np.linalg.solve(spread(end - begin, turn, step), delta[..., None])[..., 0]
        part = spread(self._moments_at(stamps[inside], legs[at]) - begin[at], turn[at], step)
        moved = np.einsum("nij,nj->ni", part, weights[at])
        out[inside] = start[at] @ lie.exp(moved) @ lie.inverses(shift)[at]
        return out

    def _moments_at(self, stamps: NDArray[np.int64], legs: NDArray[np.intp]) -> Array:
        """(K, 13) at stamps (K,) within legs (K,), linear between recorded poses."""
        before = np.clip(np.searchsorted(self.stamps, stamps, side="right") - 1, 0, len(self.stamps) - 2)
        share = (stamps - self.stamps[before]) / (self.stamps[before + 1] - self.stamps[before])
        share = np.where(before + 1 > self.middles[legs + 1], 0.0, share)[:, None]
        return np.asarray((1.0 - share) * self.moments[before] + share * self.moments[before + 1])


def node_way(node: SubmapNode) -> tuple[Array, NDArray[np.int64]]:
    """(K, 3) positions by odometry and (K,) stamps of the robot while the submap was made."""
    if not len(node.stamps):
        return node.T_odom_submap[None, :3, 3], np.array([node.first_stamp], dtype=np.int64)
    return (node.T_odom_submap @ node.track)[:, :3, 3], node.stamps


def cumulative_moments(p: Array, middles: NDArray[np.intp]) -> Array:
    """(M, 13) of OdometryChain for positions (M, 3)."""
    leg = np.clip(np.searchsorted(middles, np.arange(1, len(p)), side="left") - 1, 0, len(middles) - 1)
    step = np.diff(p, axis=0)
    middle = 0.5 * (p[1:] + p[:-1]) - p[middles][leg]
    length = np.maximum(np.linalg.norm(step, axis=1), STANDING)
    second = middle[:, :, None] * middle[:, None, :] + step[:, :, None] * step[:, None, :] / 12.0
    pieces = np.concatenate(
        [length[:, None], length[:, None] * middle, length[:, None] * second.reshape(-1, 9)], axis=1
    )
    return np.concatenate([np.zeros((1, 13)), np.cumsum(pieces, axis=0)])


def spread(moments: Array, turn: Array, step: float) -> Array:
    """(..., 6, 6) S over (rotation, translation) of a way with moments (..., 13).

    turn: (..., 3) variances of the rotation per metre; step: of the translation
    """
    length, first = moments[..., 0], moments[..., 1:4]
    second = moments[..., 4:].reshape(*moments.shape[:-1], 3, 3)
    out = np.zeros((*moments.shape[:-1], 6, 6))
    lever = np.einsum("iaj,...a,...j->...ij", CROSS, first, turn)
    out[..., 3:, :3], out[..., :3, 3:] = lever, np.swapaxes(lever, -1, -2)
    out[..., 3:, 3:] = np.einsum("iaj,kbj,...j,...ab->...ik", CROSS, CROSS, turn, second)
    index = np.arange(3)
    out[..., index, index] = length[..., None] * turn
    out[..., 3 + index, 3 + index] += length[..., None] * step
    return out
