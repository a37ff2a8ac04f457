"""What a child process has said: tests wait for it."""

from __future__ import annotations

import time

from limits import PATIENCE

from gpgmap_ros.processes import Child


def wait_for_text(child: Child, text: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while text not in child.tail(100):
        child.check()
        assert time.monotonic() < deadline, f"waited for: {text}\n{child.tail(20)}"
        time.sleep(0.05)
