"""What the node did so far: counted where it happens, read out for /diagnostics."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque

import numpy as np

WINDOW = 200  # latest durations kept for the percentiles
RATE_OVER = 5.0  # seconds over which rates are taken


class Tally:
    """Counts and durations by name; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._durations: dict[str, list[float]] = {}
        self._history: deque[tuple[float, Counter[str]]] = deque([(time.monotonic(), Counter())])

    def count(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[name] += amount

    def counts(self) -> Counter[str]:
        """All counts so far."""
        with self._lock:
            return Counter(self._counts)

    def took(self, name: str, seconds: float) -> None:
        with self._lock:
            latest = self._durations.setdefault(name, [])
            latest.append(seconds)
            del latest[:-WINDOW]

    def rates(self, *names: str) -> dict[str, str]:
        """Per second, over the time since these were asked for some seconds ago."""
        now = time.monotonic()
        with self._lock:
            counts = Counter({name: self._counts[name] for name in names})
        self._history.append((now, counts))
        while len(self._history) > 2 and self._history[1][0] <= now - RATE_OVER:
            self._history.popleft()
        then, before = self._history[0]
        passed = max(now - then, 1e-3)
        return {f"{name} per second": f"{(counts[name] - before[name]) / passed:.1f}" for name in names}

    def values(self) -> dict[str, str]:
        """Counts as they are, durations as median and 95th percentile in milliseconds."""
        with self._lock:
            values = {name: str(count) for name, count in sorted(self._counts.items())}
            for name, latest in sorted(self._durations.items()):
                median, high = (1e3 * float(np.percentile(latest, share)) for share in (50, 95))
                values[f"{name} (ms)"] = f"median {median:.1f}, p95 {high:.1f}"
        return values
