"""A progress bar for long work. Standard library only: the set-up uses it before anything is installed."""

from __future__ import annotations

import sys
import time
from typing import TextIO

BAR_CELLS = 24
REDRAW_SECONDS = 0.1


class ProgressBar:
    """`label [#####.....]  52 %  0:07  note`, redrawn in place on a terminal; elsewhere one line at the end.

    label: what is under way.
    total: the count that means done; `advance` and `update` move towards it.
    stream: where it is drawn.
    """

    def __init__(self, label: str, total: float, stream: TextIO | None = None) -> None:
        self._label, self._total, self._stream = label, max(float(total), 1e-12), stream or sys.stderr
        self._done, self._note = 0.0, ""
        self._start, self._drawn = time.monotonic(), 0.0
        self._live = self._stream.isatty()

    def __enter__(self) -> ProgressBar:
        self._draw()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._done = self._total
        self._draw(final=True)

    def advance(self, amount: float = 1.0, note: str | None = None) -> None:
        self.update(self._done + amount, note)

    def update(self, done: float, note: str | None = None, total: float | None = None) -> None:
        """`done` of `total`, which stays what it was unless it is given."""
        self._total = self._total if total is None else max(float(total), 1e-12)
        self._done = min(max(done, self._done), self._total)
        if note is not None:
            self._note = note
        if time.monotonic() - self._drawn >= REDRAW_SECONDS:
            self._draw()

    def text(self) -> str:
        share = self._done / self._total
        bar = ("#" * round(share * BAR_CELLS)).ljust(BAR_CELLS, ".")
        seconds = int(time.monotonic() - self._start)
        clock = f"{seconds // 60}:{seconds % 60:02d}"
        return f"{self._label:<34} [{bar}] {share:4.0%}  {clock}  {self._note}".rstrip()

    def _draw(self, final: bool = False) -> None:
        self._drawn = time.monotonic()
        if self._live:
            # \033[K clears what a longer line left behind
            self._stream.write(f"\r{self.text()[:118]}\033[K" + ("\n" if final else ""))
        elif final:
            self._stream.write(self.text() + "\n")
        self._stream.flush()
