"""Counts, durations and warnings of a run: recorded where they happen, read for /diagnostics and for the report."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

WINDOW = 200  # latest durations kept for the percentiles
RATE_PERIOD = 5.0  # seconds over which rates are taken
DROPPED = "clouds dropped: "
"""How the names of counts of dropped clouds begin; the reason follows."""


class Metrics:
    """Counts and durations by name; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._latest: dict[str, deque[float]] = {}
        self._seconds: dict[str, float] = {}
        self._warnings: dict[str, None] = {}
        self._history: deque[tuple[float, Counter[str]]] = deque([(time.monotonic(), Counter())])

    # ------------------------------------------------ recording

    def count(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[name] += amount

    def drop_cloud(self, reason: str) -> None:
        """Count a cloud that is not used."""
        self.count(DROPPED + reason)

    def add_duration(self, name: str, seconds: float) -> None:
        with self._lock:
            self._latest.setdefault(name, deque(maxlen=WINDOW)).append(seconds)
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Record the time that the body takes."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add_duration(name, time.perf_counter() - begin)

    def warn(self, text: str) -> None:
        """Keep a warning, once."""
        with self._lock:
            self._warnings[text] = None

    # ------------------------------------------------ reading

    def __getitem__(self, name: str) -> int:
        """A count; 0 where nothing was counted."""
        with self._lock:
            return self._counts[name]

    def counts(self, prefix: str = "") -> Counter[str]:
        """All counts whose names begin with `prefix`, under the rest of their names."""
        with self._lock:
            found = {name: n for name, n in self._counts.items() if name.startswith(prefix)}
        return Counter({name.removeprefix(prefix): count for name, count in found.items()})

    @property
    def dropped(self) -> Counter[str]:
        """Clouds that were not used, by reason."""
        return self.counts(DROPPED)

    @property
    def seconds(self) -> dict[str, float]:
        """Time spent in each stage, the longest first."""
        with self._lock:
            return dict(sorted(self._seconds.items(), key=lambda item: -item[1]))

    @property
    def warnings(self) -> list[str]:
        with self._lock:
            return list(self._warnings)

    def rates(self, *names: str) -> dict[str, str]:
        """Counts per second, over the time since these were asked for some seconds ago."""
        now = time.monotonic()
        counts = Counter({name: self[name] for name in names})
        self._history.append((now, counts))
        while len(self._history) > 2 and self._history[1][0] <= now - RATE_PERIOD:
            self._history.popleft()
        then, before = self._history[0]
        passed = max(now - then, 1e-3)
        return {f"{name} per second": f"{(counts[name] - before[name]) / passed:.1f}" for name in names}

    def values(self, labels: Mapping[str, str] | None = None) -> dict[str, str]:
        """Counts as they are, durations as median and 95th percentile in milliseconds. labels: names of stages."""
        with self._lock:
            values = {name: str(count) for name, count in sorted(self._counts.items())}
            latest = {(labels or {}).get(name, name): list(found) for name, found in self._latest.items()}
        for name, durations in sorted(latest.items()):
            median, high = (1e3 * float(np.percentile(durations, share)) for share in (50, 95))
            values[f"{name} (ms)"] = f"median {median:.1f}, p95 {high:.1f}"
        return values
