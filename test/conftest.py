"""What all tests share."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from browser import find_chromium

ROOT = Path(__file__).resolve().parent.parent

# Field checks of ROS messages are off by default; without them a wrong type goes out as rubbish. Set before any
# message module is imported, here and in every child.
os.environ["ROS_PYTHON_CHECK_FIELDS"] = "1"
# As the Makefile does, for whoever calls pytest directly: nothing is left outside the project folder.
for name, folder in (("MPLCONFIGDIR", "matplotlib"), ("ROS_LOG_DIR", "ros"), ("COLCON_HOME", "colcon")):
    os.environ.setdefault(name, str(ROOT / ".cache" / folder))
# Workers that share the cores take one thread of BLAS each, as do the processes that they start, and threads of OpenMP
# sleep while they wait: both would spin, and take the cores from the other workers. With `-n 0` all is as users have
# it. Before numpy is imported, which reads it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Some hundred processes are started: with this set, each would compile all modules of the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A shell that runs the tests in the background lets them ignore Ctrl-C; whatever they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Real terrain data; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("GPGMAP_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data folder ({folder}): set GPGMAP_DATA to run this test")
    return folder


@pytest.fixture(scope="session")
def chromium() -> str:
    """A browser; tests that need one are skipped where there is none."""
    found = find_chromium()
    if found is None:
        pytest.skip("no Chromium: sudo apt install chromium")
    return found


@pytest.fixture(scope="session")
def executables() -> Path:
    """The folder with the installed commands."""
    return Path(sys.executable).parent
