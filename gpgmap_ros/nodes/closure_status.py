"""The state of the loop closures for /diagnostics."""

from __future__ import annotations

import time

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

from gpgmap_ros.nodes.health import resident_megabytes
from gpgmap_ros.slam.backlog import Backlog
from gpgmap_ros.slam.closure_messages import Restored, Update
from gpgmap_ros.slam.closure_process import ClosureProcess


class ClosureStatus:
    """update: the last one; restored: what earlier runs left; joined: sessions that this drive has joined, in words"""

    def __init__(self, process: ClosureProcess) -> None:
        self._process, self._backlog = process, Backlog()
        self.update: Update | None = None
        self.restored: Restored | None = None
        self.joined: list[str] = []

    def diagnostics(self, name: str) -> DiagnosticStatus:
        """What became of closures so far."""
        update = self.update
        backlog = self._process.backlog
        values = {
            "requests waiting": str(self._process.waiting),
            "submaps waiting to be compared": str(backlog),
        }
        if self._process.pid is not None:
            values["resident memory of the process (MB)"] = f"{resident_megabytes(self._process.pid):.0f}"
        message = "no submap has been compared yet"
        level = DiagnosticStatus.OK
        if update is not None:
            T = update.T_map_odom
            yaw = float(np.degrees(np.arctan2(T[1, 0], T[0, 0])))
            accepted = int(update.accepted.sum())
            values |= {
                "submaps in the graph": str(len(update.ids)),
                "submaps that show no place": str(update.skipped),
                "comparisons": str(update.count),
                "closures in the graph": str(accepted),
                "closures overruled or rejected": str(len(update.accepted) - accepted),
                "correction map <- odom (m)": f"{np.linalg.norm(T[:3, 3]):.3f}",
                "correction map <- odom (deg)": f"{yaw:.2f}",
            }
            message = f"{accepted} closures over {len(update.ids)} submaps"
            if self.joined:
                values["sessions joined"] = "; ".join(self.joined)
            if update.earlier:
                message += " of earlier drives"
            elif not update.located:
                message += "; not found in the earlier map yet"
        elif self.restored is not None and backlog:
            message = (
                f"{backlog} of {self.restored.submaps} submaps of earlier drives are still to be compared"
            )
        problems = [
            update.problem if update is not None else "",
            self._backlog.problem(backlog, time.monotonic()),
        ]
        if any(problems):
            message, level = "; ".join(filter(None, problems)), DiagnosticStatus.WARN
        return DiagnosticStatus(
            level=level,
            name=f"{name}: loop closure",
            message=message,
            values=[KeyValue(key=key, value=value) for key, value in values.items()],
        )
