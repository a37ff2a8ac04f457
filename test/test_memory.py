"""The C library takes the settings that keep a node's memory flat, and what only a start needs is given back."""

from __future__ import annotations

import subprocess
import sys

import pytest
from limits import PATIENCE

PROGRAM = """
import ctypes, threading
import numpy as np
from gpgmap_ros.memory import limit_malloc_arenas

assert limit_malloc_arenas()

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

before = resident()
def work():
    for _ in range(3):
        arrays = [np.ones(1 << 20) for _ in range(8)]  # 8 MB each
        del arrays
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert resident() < before + (20 << 20), (before, resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="settings of glibc")
def test_large_arrays_are_given_back():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=PATIENCE)


RELEASE = """
import numpy as np
from numba import njit
from gpgmap_ros.memory import release_libraries, resident_bytes

before = resident_bytes()
released = release_libraries()
assert released > 50 << 20, released  # LLVM alone has more
assert resident_bytes() < before - released // 2, (before, released, resident_bytes())
# What was released is read again where it is needed: by LLVM, by BLAS, by numpy's loops
assert njit(lambda x: x @ x + 1.0)(np.eye(3)).trace() == 6.0
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc/self/smaps")
def test_libraries_that_a_start_has_read_are_released_and_go_on_working():
    subprocess.run([sys.executable, "-c", RELEASE], check=True, timeout=PATIENCE)
