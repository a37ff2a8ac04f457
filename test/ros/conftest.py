"""Real processes over real DDS, on this machine only, each test on a domain of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: run `make setup`")

from client import RosClient
from fast_mapping import FAST
from forked_node import ForkedNode, NodeTemplate

from gpgmap_ros.nodes.abandoned_memory import remove_abandoned_segments
from gpgmap_ros.processes import Child, ProcessFailed, free_domain_id, isolated_ros_environment


def _some_domains() -> list[int]:
    """As many as leave participants of earlier tests time to be forgotten, and domains to other workers and the demo.

    Fewer, two at least, where other test runs on this machine have taken theirs.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    found: list[int] = []
    with contextlib.suppress(ProcessFailed):
        while len(found) < max(2, min(12, 60 // workers)):
            found.append(free_domain_id())
    assert len(found) >= 2, "ROS domains are all in use by other test runs: wait until one has ended"
    return found


_domains = itertools.cycle(_some_domains())

Start = Callable[..., Child]


@pytest.fixture(scope="session", autouse=True)
def leave_no_shared_memory() -> Iterator[None]:
    """Some tests kill a node."""
    yield
    remove_abandoned_segments()


@pytest.fixture(scope="session")
def domain_ids() -> Iterator[int]:
    """Domains in turn, for a node of its own."""
    return _domains


@pytest.fixture
def ros_environment(tmp_path: Path, domain_ids: Iterator[int]) -> dict[str, str]:
    environment = isolated_ros_environment(tmp_path / "logs", domain_id=next(domain_ids))
    environment["ROS_PYTHON_CHECK_FIELDS"] = "1"
    return environment


@pytest.fixture
def client(ros_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[RosClient]:
    """A participant in this process that finds the test's children, and nobody else."""
    for name in ("ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_LOG_DIR", "FASTRTPS_DEFAULT_PROFILES_FILE"):
        monkeypatch.setenv(name, ros_environment[name])
    client = RosClient(int(ros_environment["ROS_DOMAIN_ID"]))
    yield client
    client.close()


@pytest.fixture
def start(ros_environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts children; whatever still runs at the end of the test is stopped."""
    children: list[Child] = []

    def start_child(name: str, *command: str) -> Child:
        child = Child(name, list(command), ros_environment, tmp_path / "logs" / f"{name}.{len(children)}.log")
        children.append(child)
        return child

    yield start_child
    for child in children:
        child.stop()


@pytest.fixture
def start_default_node(start: Start, executables: Path) -> Start:
    """Starts the installed mapping_node with ROS arguments."""

    def start_mapping_node(*ros_arguments: str) -> Child:
        return start("mapping_node", str(executables / "mapping_node"), "--ros-args", *ros_arguments)

    return start_mapping_node


@pytest.fixture(scope="session")
def node_template() -> Iterator[NodeTemplate]:
    """What nodes are forked from."""
    template = NodeTemplate()
    yield template
    template.close()


@pytest.fixture
def start_module(
    start: Start, node_template: NodeTemplate, ros_environment: dict[str, str], tmp_path: Path
) -> Iterator[Start]:
    """Starts a module of gpgmap_ros.nodes; forked, unless the environment has something that Python reads earlier."""
    children: list[Child] = []

    def start_python_module(name: str, *arguments: str) -> Child:
        if not node_template.suits(ros_environment):
            return start(name, sys.executable, "-m", f"gpgmap_ros.nodes.{name}", *arguments)
        log = tmp_path / "logs" / f"{name}.forked{len(children)}.log"
        children.append(ForkedNode(node_template, name, list(arguments), ros_environment, log))
        return children[-1]

    yield start_python_module
    for child in children:
        child.stop()


@pytest.fixture
def start_node(start_module: Start) -> Start:
    """Starts the mapping node with the kernel that is mapped fastest, unless the arguments choose another."""
    fast = [word for name, value in FAST.items() for word in ("-p", f"{name}:={str(value).lower()}")]

    def start_fast_node(*ros_arguments: str) -> Child:
        return start_module("mapping_node", "--ros-args", *fast, *ros_arguments)

    return start_fast_node
