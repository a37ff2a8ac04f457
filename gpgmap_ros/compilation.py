"""What users see while inner loops are compiled at a first start: lines in the terminal or in a node's log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOGGER = "gp_core.compiled"
"""The logger that speaks of it; named here, because importing that module takes half a second."""
PERIOD = 5.0
"""Seconds between two lines about how far it is."""


class CompilationLines(logging.Handler):
    """Passes the first message on, and later ones every few seconds.

    say: takes a line
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say, self._said = say, time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if record.levelno >= logging.WARNING or now - self._said >= PERIOD:
            self._said = now
            self._say(record.getMessage())


@contextmanager
def compilation_told(say: Callable[[str], None]) -> Iterator[None]:
    """Inside, `say` is told what is compiled; it hears nothing where all loops are on disk."""
    logger, lines = logging.getLogger(LOGGER), CompilationLines(say)
    before = logger.level, logger.propagate
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.level, logger.propagate = before


def say_in_terminal(text: str) -> None:
    """A line on standard error, in place of a progress bar that may be half drawn there."""
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    print(f"{clear}gpgmap: {text}", file=sys.stderr, flush=True)
