"""Standard output for the result of a command alone.

Libraries in C++ print to file descriptor 1, some of them as the process ends, where nothing of Python's can catch it.
"""

from __future__ import annotations

import os
import sys

STDOUT, STDERR = 1, 2


def claim_standard_output() -> None:
    """From now on only `print` and `sys.stdout` reach standard output: what libraries and children write to it goes to
    standard error. Where there is no standard error, nothing changes."""
    old = sys.stdout
    if old is None:  # Python found it closed
        return
    old.flush()
    own = os.dup(STDOUT)
    try:
        os.dup2(STDERR, STDOUT)
    except OSError:
        os.close(own)
        return
    sys.stdout = open(own, "w", encoding=old.encoding, errors=old.errors)  # noqa: SIM115 (until the process ends)
