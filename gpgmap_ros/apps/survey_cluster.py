"""Chooses and opens the runner of a survey: this process, processes of this machine, or a cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpgmap_ros.apps.survey_runner import DaskRunner, LocalRunner, Runner

LOCAL, PROCESSES = "local", "processes"
PACKED_SUFFIXES = (".laz",)
LARGE_BYTES, LARGE_PACKED = 1_500_000_000, 250_000_000
"""Sizes of all files, of packed ones, from which starting several processes is worth its seconds: 60 M points."""
PROCESS_BYTES = 1 << 30
"""Memory that must be free for each process, besides that of the client."""
RETURN = {"distributed.deploy.lost-worker-timeout": "5 minutes"}
"""Of Dask's settings: how long a worker that was lost is waited for. Its successor starts at once, but takes longer
than Dask's 15 s on a busy machine, and would be ended as soon as it is there."""


def is_scheduler(text: str) -> bool:
    """Whether `--scheduler` may have this value."""
    return text in (LOCAL, PROCESSES) or re.fullmatch(r"(tcp|tls|ws|wss)://.+:\d+", text) is not None


def choose_scheduler(files: Sequence[Path], memory: int) -> str:
    """LOCAL, or PROCESSES where the files are large, there are cores and memory, and Dask is installed."""
    sizes = {path: path.stat().st_size for path in files if path.is_file()}
    packed = sum(size for path, size in sizes.items() if path.suffix.lower() in PACKED_SUFFIXES)
    plain = sum(sizes.values()) - packed
    large = packed / LARGE_PACKED + plain / LARGE_BYTES >= 1.0
    return PROCESSES if large and process_count(memory) > 1 and dask_is_installed() else LOCAL


def dask_is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("dask", "distributed"))


def process_count(memory: int) -> int:
    """Processes that this machine has cores and free memory for. memory: bytes of each"""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(min(len(os.sched_getaffinity(0)), int(free // max(memory, PROCESS_BYTES))), 1)


@contextlib.contextmanager
def open_runner(scheduler: str, memory: int) -> Iterator[Runner]:
    """The runner that a scheduler stands for: LOCAL, PROCESSES, or the address of a cluster.

    memory: bytes of each process
    RuntimeError where the cluster can't be reached or has no workers; ImportError where Dask is missing.
    """
    if scheduler == LOCAL:
        yield LocalRunner()
        return
    import dask
    from distributed import Client, LocalCluster

    with contextlib.ExitStack() as stack:
        if scheduler == PROCESSES:
            stack.enter_context(dask.config.set(RETURN))
            own = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpgmap_dask_"))
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=process_count(memory),
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    memory_limit=None,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=50,
                    local_directory=own,
                )
            )
            client = stack.enter_context(Client(cluster, set_as_default=False))
        else:
            client = connect(scheduler)
            stack.callback(client.close)
        if not client.nthreads():
            raise RuntimeError(
                f"the cluster at {scheduler} has no workers: start some with `dask worker {scheduler}`"
            )
        yield DaskRunner(client, describe(scheduler, client))


def connect(address: str) -> Any:
    """A client of the cluster; RuntimeError where there is none."""
    from distributed import Client

    try:
        return Client(address, timeout="15s", set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise RuntimeError(
            f"no Dask scheduler answers at {address} ({error}): start one with `dask scheduler`, and workers with"
            f" `dask worker {address}`"
        ) from error


def describe(scheduler: str, client: Any) -> str:
    """What runs the tasks, and where Dask shows it."""
    count = len(client.nthreads())
    what = f"{count} processes" if scheduler == PROCESSES else f"{count} workers at {scheduler}"
    if importlib.util.find_spec("bokeh") is None:
        return f"{what} (pip install bokeh shows them in a browser)"
    return f"{what}; dashboard at {client.dashboard_link}"
