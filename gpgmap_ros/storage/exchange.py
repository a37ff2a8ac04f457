"""Two files or folders change names in one step, where system and file system can: renameat2(2) of Linux."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

AT_FDCWD = -100
RENAME_EXCHANGE = 2
UNABLE = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}
"""What a kernel or a file system says that does not know it."""


def exchange(one: Path, other: Path) -> bool:
    """Give each the name of the other. False where that cannot be done in one step; OSError where it is refused."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # another system, or a C library from before 2018
        return False
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in UNABLE:
        return False
    raise OSError(number, os.strerror(number), str(other))
