"""Drift inside two submaps as their odometry states it, over that of `closure.drift_*`.

An odometry that adds up its errors states variances of position and heading for the way in a submap
(`GPGMap.drift_rates`). Where it does, they take the place of what is usual: a drive whose odometry is good is nearly
straight, one whose odometry is bad is bent more. A part of the usual variance remains, for errors that the odometry has
no model of: a calibration, a slope that it slides on, ground that has changed since.
"""

from __future__ import annotations

import numpy as np

from gp_core.arrays import Array
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.bending import DRIVEN
from gpgmap_ros.closure.registration.deformation import SHIFT
from gpgmap_ros.closure.registration.registration_map import RegistrationMap

KINDS = 2.0
"""Of drift along the way: what comes anew with every part, and what stays; both are as large at its end."""
UNSTATED = 0.2
"""Of the usual variance, beside what is stated."""
LARGEST = 3.0
"""Factor beyond which nothing is believed: covariances are often inflated, and maps that are bent as usual would count
as straight against a drift that large."""


def stated_factors(source: RegistrationMap, target: RegistrationMap, config: ClosureConfig) -> Array:
    """(2, 2) by map, of shifts and turns: factors on standard deviations by `closure.drift_*`; 1 where none is stated.

    The mean of tau^2 before residuals are seen, times these squared and both kinds of drift, is what is stated.
    """
    rates = np.array([source.drift_rates, target.drift_rates])
    expected = KINDS * DRIVEN.usual**2 * np.exp(2.0 * DRIVEN.spread**2)
    by_settings = np.array([SHIFT * config.drift_position, config.drift_rotation]) ** 2
    driven = np.array([[len(source.way) > 1], [len(target.way) > 1]])
    stated = driven & np.all(rates > 0.0, axis=1, keepdims=True)
    factors = np.sqrt(np.where(stated, rates / (expected * by_settings) + UNSTATED, 1.0))
    return np.asarray(np.minimum(factors, LARGEST))
