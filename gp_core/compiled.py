"""How loops are compiled: one home for the options that all of them share, and for what is said while it happens.

Numba compiles a loop when it is first called and keeps the machine code on disk, one file for each kind of CPU: beside
the source where that folder can be written to, else in the user's cache folder, or where NUMBA_CACHE_DIR says. So only
the first start on a machine waits. It says so to the logger of this module: one warning, since a library's lesser
messages are shown to nobody and somebody waits, then how far it is.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from numba import njit
from numba.core.event import Event, Listener, register

_LOG = logging.getLogger(__name__)
_NOTICEABLE: Final = 1.0
"""Seconds of compilation in a process after which the user is told: a single loop that was missing needs no words."""


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Numba's decorator: machine code kept on disk, run without the interpreter's lock, further `options` as njit's.

    A division by zero gives an infinity or NaN, as in numpy: an exception that leaves compiled code keeps the arrays
    of that call in memory for ever, and a check in front of every division keeps loops from being vectorised.
    """
    options = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, **options}

    def decorate(function: Any) -> Any:
        try:
            loop = njit(cache=True, **options)(function)
        except (
            RuntimeError
        ):  # there is no folder for the machine code: better a slow start each time than none
            _WATCH.kept = False
            loop = njit(**options)(function)
        _forgive_index(loop)
        _WATCH.loops.add(loop)
        return loop

    return decorate


def _forgive_index(loop: Any) -> None:
    """Compile anew where the index of a loop's machine code can't be read.

    It names classes of this package. After an update one of them may be gone, and numba, which reads the index before
    it looks at the age of the source, would raise AttributeError at every start.
    """
    file = getattr(getattr(loop, "_cache", None), "_cache_file", None)
    read = getattr(file, "_load_index", None)
    if file is None or read is None:  # nothing is kept on disk
        return

    def read_or_nothing() -> Any:
        try:
            return read()
        except OSError:
            raise  # numba says what it does then
        except Exception as error:
            _LOG.debug("the index of compiled code of %s is not used: %s", loop.__name__, error)
            return {}

    file._load_index = read_or_nothing


def cache_folder() -> str | None:
    """Folder in which the machine code of this package's loops is kept; None where none can be written to."""
    folders = sorted(loop.stats.cache_path or "" for loop in _WATCH.loops)
    return folders[0] or None if folders else None


def folder_of(loop: Any) -> Path | None:
    """Folder in which the machine code of one of these loops is kept; None where none can be written to."""
    path = loop.stats.cache_path
    return Path(path) if path else None


def loops_compiled() -> int:
    """How many loops of this package have been compiled in this process, not counting those found on disk."""
    return _WATCH.done


class _Watch(Listener):
    """Hears of every function that numba compiles, by one thread at a time, and speaks of ours.

    loops: all that `compiled` has made
    kept: whether their machine code is kept on disk
    done: how many have been compiled
    """

    def __init__(self) -> None:
        self.loops: set[Any] = set()
        self.kept = True
        self._begun: list[float] = []
        self.done = 0
        self._seconds, self._told = 0.0, False
        self._collecting = False

    def on_start(self, event: Event) -> None:
        if event.data["dispatcher"] in self.loops:
            if not self._begun:
                # A tenth of the time would go into looking for garbage among what the compiler still needs.
                self._collecting = gc.isenabled()
                gc.disable()
            self._begun.append(time.monotonic())
            self._tell()

    def on_end(self, event: Event) -> None:
        if event.data["dispatcher"] in self.loops and self._begun:
            begun = self._begun.pop()
            self.done += 1
            if not self._begun:
                self._seconds += time.monotonic() - begun
                if self._collecting:
                    gc.enable()
            self._tell()

    def _tell(self) -> None:
        seconds = self._seconds + (time.monotonic() - self._begun[0] if self._begun else 0.0)
        if seconds < _NOTICEABLE:
            return
        if not self._told:
            self._told = True
            _LOG.warning(
                "compiling the inner loops for this CPU: 15 to 40 s of processor time, %s",
                "at the first start only" if self.kept
                else "at every start, since no folder can be written to: set NUMBA_CACHE_DIR to one that can",
            )  # fmt: skip
        _LOG.info("compiling: %d of about %d loops, %.0f s", self.done, len(self.loops), seconds)


_WATCH: Final = _Watch()
register("numba:compile", _WATCH)  # type: ignore[no-untyped-call]
