"""ROS 2 security: the shipped policy names what the running node uses, and without its keys the node does not run.

The test with keys needs a Fast DDS that was built with security and the package sros2: a ROS installation has both, the
wheels have neither.
"""

from __future__ import annotations

import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from child_text import wait_for_text
from client import RosClient
from limits import PATIENCE
from scene import CloudSource
from sensor_msgs.msg import Image

from gpgmap_ros.processes import Child

SMALL = ("-p", "mapping.size_x:=2.0", "-p", "mapping.size_y:=2.0", "-p", "mapping.resolution:=0.2")
ENCLAVE = "/gpgmap/mapping_node"
RULES = ("publish", "subscribe", "reply")
DISCOVERY = 60.0
"""Seconds after which a name that has not been discovered counts as not used."""
SECURITY_VARIABLES = ("ROS_SECURITY_ENABLE", "ROS_SECURITY_STRATEGY", "ROS_SECURITY_KEYSTORE")

# Together they use every name that the node can use. Beside the arguments: what this variant does not use.
VARIANTS = (
    (
        ("-p", "pose_source:=tf", "-p", "use_sim_time:=true", "-p", "closure.publish_tf:=true"),
        {"publish": {"/tf_static"}, "subscribe": {"/odometry"}},
    ),
    (
        ("-p", "pose_source:=odometry", "-p", "gps.publish_tf:=true"),
        {"publish": {"/tf"}, "subscribe": {"/clock"}},
    ),
)


@pytest.fixture
def policy(root: Path) -> Path:
    return root / "config" / "security_policy.xml"


def allowed(policy: Path, rule: str) -> set[str]:
    """Full names that the policy allows for publish, subscribe or reply."""
    (enclave,) = ElementTree.parse(policy).getroot().iter("enclave")
    assert enclave.get("path") == ENCLAVE
    (profile,) = enclave.iter("profile")
    assert profile.get("ns") == "/"
    names = [item.text or "" for rules in profile if rules.get(rule) == "ALLOW" for item in rules]
    assert len(names) == len(set(names))
    node = f"/{profile.get('node')}"
    return {name.replace("~", node) if name.startswith(("~", "/")) else f"/{name}" for name in names}


def used(client: RosClient) -> dict[str, set[str]]:
    """Names that the running node publishes, subscribes to and serves."""
    ask = {
        "publish": client.node.get_publisher_names_and_types_by_node,
        "subscribe": client.node.get_subscriber_names_and_types_by_node,
        "reply": client.node.get_service_names_and_types_by_node,
    }
    return {rule: {name for name, _ in question("mapping_node", "/")} for rule, question in ask.items()}


def test_the_policy_names_exactly_what_the_node_uses(
    client: RosClient, start_node: Any, policy: Path
) -> None:
    for variant, unused in VARIANTS:
        expected = {rule: allowed(policy, rule) - unused.get(rule, set()) for rule in RULES}
        node = start_node(*SMALL, *variant)
        client.spin_until(lambda: "mapping_node" in client.node.get_node_names(), "the node")
        wait_for_text(node, "mapping '/points'")
        deadline = time.monotonic() + DISCOVERY
        while (
            used(client) != expected and time.monotonic() < deadline
        ):  # one name after another is discovered
            client.spin_for(0.1)
        client.spin_for(1.0)  # names that are not expected may come last
        assert used(client) == expected
        assert client.node.get_client_names_and_types_by_node("mapping_node", "/") == []
        node.stop(PATIENCE)
        client.spin_until(lambda: "mapping_node" not in client.node.get_node_names(), "the end of the node")


def secured(environment: dict[str, str], keystore: Path | None) -> None:
    """Switch security on for what is started with this environment."""
    environment.update(ROS_SECURITY_ENABLE="true", ROS_SECURITY_STRATEGY="Enforce")
    if keystore is not None:
        environment["ROS_SECURITY_KEYSTORE"] = str(keystore)


def refusal(node: Child) -> str:
    """What a node says that does not start."""
    assert node.wait(PATIENCE) == 2
    text = node.tail(50)
    assert "mapping_node: ROS_SECURITY_ENABLE is true, but the node cannot start with security" in text
    assert "docs/security_sros2.md" in text
    assert "Traceback" not in text
    return text


def test_no_keystore(start_node: Any, ros_environment: dict[str, str]) -> None:
    secured(ros_environment, None)
    assert "ROS_SECURITY_KEYSTORE does not name a keystore" in refusal(start_node(*SMALL))


def test_no_such_enclave(start_node: Any, ros_environment: dict[str, str], tmp_path: Path) -> None:
    secured(ros_environment, tmp_path)
    assert f"'{tmp_path}/enclaves{ENCLAVE}' does not exist" in refusal(
        start_node(*SMALL, "--enclave", ENCLAVE)
    )


def test_an_enclave_without_keys(start_node: Any, ros_environment: dict[str, str], tmp_path: Path) -> None:
    """Refused by a Fast DDS with security for the missing files, by one without because it is without."""
    secured(ros_environment, tmp_path)
    (tmp_path / f"enclaves{ENCLAVE}").mkdir(parents=True)
    refusal(start_node(*SMALL, "--enclave", ENCLAVE))


@pytest.fixture
def keystore(start_node: Any, ros_environment: dict[str, str], tmp_path: Path, policy: Path,
             monkeypatch: pytest.MonkeyPatch) -> Path:  # fmt: skip
    """Keys for the node with the shipped policy, and for a client that may do everything."""
    secured(ros_environment, tmp_path)
    (tmp_path / "enclaves" / "empty").mkdir(parents=True)
    if "doesn't have the security libraries" in refusal(start_node(*SMALL, "--enclave", "/empty")):
        pytest.skip("this Fast DDS was built without security (the wheels are; a ROS installation's has it)")
    sros2 = pytest.importorskip("sros2.keystore", reason="sros2 is not installed (a ROS installation has it)")
    folder = tmp_path / "keystore"
    monkeypatch.setenv("ROS_DOMAIN_ID", ros_environment["ROS_DOMAIN_ID"])  # permissions are for one domain
    sros2.create_keystore(folder)
    for enclave in (ENCLAVE, "/client"):
        sros2.create_enclave(folder, enclave)
    sros2.create_permission(folder, ENCLAVE, policy)
    secured(ros_environment, folder)
    return folder


@pytest.fixture
def join(
    ros_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., RosClient]]:
    """Participants in this process, with keys or without."""
    for name in ("ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_LOG_DIR", "FASTRTPS_DEFAULT_PROFILES_FILE"):
        monkeypatch.setenv(name, ros_environment[name])
    clients = []

    def join_domain(enclave: str | None) -> RosClient:
        for name in SECURITY_VARIABLES:
            if enclave is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, ros_environment[name])
        if enclave is not None:
            monkeypatch.setenv("ROS_SECURITY_ENCLAVE_OVERRIDE", enclave)
        clients.append(RosClient(int(ros_environment["ROS_DOMAIN_ID"])))
        return clients[-1]

    yield join_domain
    for client in clients:
        client.close()


def test_a_stranger_neither_hears_nor_feeds_the_node(
    keystore: Path, join: Callable[..., RosClient], start_node: Any
) -> None:
    node = start_node(*SMALL, "--enclave", ENCLAVE)
    client, stranger = join("/client"), join(None)
    maps = client.listen(Image, "/mapping_node/elevation")
    overheard = stranger.listen(Image, "/mapping_node/elevation")
    source = CloudSource(client)
    client.spin_until(lambda: source.publish() or len(maps) >= 3, "maps for the client with keys")
    seen = client.spin_until_quiet(maps)
    false_source = CloudSource(stranger, start=2_000)
    for _ in range(30):
        false_source.publish()
    assert client.spin_until_quiet(maps) == seen
    assert overheard == []
    assert stranger.node.get_publishers_info_by_topic("/mapping_node/elevation") == []
    assert node.running()
