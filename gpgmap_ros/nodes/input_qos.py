"""Quality of service of what the node listens to, open to ROS 2's own parameters for it.

    qos_overrides./points.subscription.reliability: reliable
    qos_overrides./points.subscription.depth: 100

Best effort suits every publisher and is the default. Recordings and simulators may need every cloud.
"""

from __future__ import annotations

import copy
from typing import Any

from rclpy.qos import QoSProfile
from rclpy.qos_overriding_options import QoSOverridingOptions


def overridable(profile: QoSProfile) -> dict[str, Any]:
    """Arguments of `create_subscription`: this profile, unless the parameters of its topic say otherwise."""
    return {
        "qos_profile": copy.copy(profile),  # rclpy writes the overrides into it
        "qos_overriding_options": QoSOverridingOptions.with_default_policies(),
    }
