"""A child process that ends when its parent does, however that ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # sys/prctl.h


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; end now if that has happened already.

    parent: number of the parent process. Where the system is not Linux nothing is done: watch a pipe as well.
    """
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
