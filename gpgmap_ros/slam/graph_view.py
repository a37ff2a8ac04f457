"""The pose graph as its users see it, put together from updates that name only what is new."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpgmap_ros.closure.rows import Rows
from gpgmap_ros.closure.track import ThinnedTrack
from gpgmap_ros.slam.closure_messages import Update

MAX_TRACK = 4000
"""Poses of the corrected trajectory that are shown: a longer one is thinned."""


class GraphView:
    """All submaps, closures and poses that the updates so far have told of."""

    def __init__(self) -> None:
        self._track = ThinnedTrack(MAX_TRACK)
        self._ids, self._poses = Rows(np.zeros(0, dtype=np.int64)), Rows(np.zeros((0, 4, 4)))
        self._pairs = Rows(np.zeros((0, 2), dtype=np.int64))
        self._accepted = Rows(np.zeros(0, dtype=np.bool_))

    def whole(self, update: Update) -> Update:
        """The update with everything that is known after it."""
        if update.complete:
            self._ids, self._poses = Rows(update.ids), Rows(update.poses)
            self._pairs, self._accepted = Rows(update.pairs), Rows(update.accepted)
            self._track.replace(update.stamps, update.track, update.recorded)
        else:
            self._ids.extend(update.ids)
            self._poses.extend(update.poses)
            self._pairs.extend(update.pairs)
            self._accepted.extend(update.accepted)
            self._track.extend(update.stamps, update.track)
        stamps, track = self._track.arrays()
        return replace(
            update,
            complete=True,
            ids=self._ids.values,
            poses=self._poses.values,
            pairs=self._pairs.values,
            accepted=self._accepted.values,
            stamps=stamps,
            track=track,
        )
