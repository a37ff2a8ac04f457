"""A terminal for a command: on one, progress is shown while it is made."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from limits import PATIENCE


class TerminalProcess:
    """A process whose standard error is a terminal. said: what it has written there"""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process, self._terminal = process, terminal
        self.said = ""

    def read(self, seconds: float = 0.0) -> bool:
        """Take in what was written, waiting for some time at most; False where nothing was."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return False
        try:
            text = os.read(self._terminal, 1 << 16).decode(errors="replace")
        except OSError:  # the other side is closed
            return False
        self.said += text
        return bool(text)

    def wait_for(self, pattern: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.said):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            self.read(0.05)

    def end(self) -> int:
        """The exit code; what is written until then is read, because a full terminal would hold the process up."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.said
            self.read(0.05)
        return self.process.wait()


@contextmanager
def on_terminal(command: list[str], folder: Path) -> Iterator[TerminalProcess]:
    """Runs a command; whatever happens, it has ended afterwards."""
    terminal, other = os.openpty()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=other)
    os.close(other)
    try:
        yield TerminalProcess(process, terminal)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
