"""ROS 2 security (SROS 2): why a node was refused, in words. docs/security_sros2.md says how to switch it on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from gpgmap_ros.nodes.lifecycle import RCLError


class SecurityError(RuntimeError):
    """Security was asked for and ROS 2 could not give it: the node does not run without it."""


@contextmanager
def security_errors() -> Iterator[None]:
    """Raise SecurityError for what ROS 2 refuses in here while ROS_SECURITY_ENABLE is true."""
    try:
        yield
    except RCLError as error:
        if os.environ.get("ROS_SECURITY_ENABLE") != "true":
            raise
        keystore = os.environ.get("ROS_SECURITY_KEYSTORE")
        if keystore:
            # rcl ends its message with the place in its own source
            reason = " ".join(str(error).split(", at /")[0].split()).rstrip(".")
        else:
            reason = "ROS_SECURITY_KEYSTORE does not name a keystore"
        raise SecurityError(
            f"ROS_SECURITY_ENABLE is true, but the node cannot start with security: {reason}. "
            "docs/security_sros2.md says how to make the keystore and which installations of ROS 2 can use it"
        ) from error
