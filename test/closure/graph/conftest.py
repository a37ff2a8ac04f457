"""A drive with drift around a ring, as arrays for the solvers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gpgmap_ros.closure.graph import lie
from gpgmap_ros.closure.graph.problem import Problem

ODOMETRY = np.diag([0.004**2] * 2 + [0.02**2] + [0.1**2] * 2 + [0.05**2])
CLOSURE = np.diag([0.002**2] * 3 + [0.05**2] * 3)


@pytest.fixture
def ring() -> Callable[..., Problem]:
    def made(count: int = 60, lap: int = 20, wrong: int = 0, seed: int = 0) -> Problem:
        rng = np.random.default_rng(seed)
        angle = 2.0 * np.pi * np.arange(count) / lap
        xi = np.zeros((count, 6))
        xi[:, 2] = (angle + np.pi) % (2.0 * np.pi) - np.pi
        truth = lie.exp(xi)
        truth[:, :3, 3] = np.column_stack(
            [20.0 * np.cos(angle), 20.0 * np.sin(angle), 0.1 * np.sin(3 * angle)]
        )
        first = np.concatenate([np.arange(count - 1), np.arange(count - lap)])
        second = np.concatenate([np.arange(1, count), np.arange(lap, count)])
        Z = lie.inverses(truth[first]) @ truth[second]
        robust = np.arange(len(first)) >= count - 1
        covariance = np.where(robust[:, None, None], CLOSURE, ODOMETRY)
        noise = rng.normal(size=(len(first), 6)) * np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        Z = Z @ lie.exp(noise)
        for k in range(wrong):
            Z[count - 1 + 3 * k, :2, 3] += rng.normal(scale=6.0, size=2)
        # closures go either way, as drives that were merged have them
        backwards = robust & (np.arange(len(first)) % 2 == 0)
        Z[backwards] = lie.inverses(Z[backwards])
        first, second = np.where(backwards, second, first), np.where(backwards, first, second)
        start = [truth[0]]
        for k in range(count - 1):
            start.append(start[-1] @ Z[k])
        return Problem(np.array(start), np.array([0]), first, second, Z, covariance, robust)

    return made
