"""rclpy keeps its own state in attributes of the node: a class of ours must not use their names."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: the players can't be imported")

import rclpy
from rclpy.lifecycle import LifecycleNode
from rclpy.node import Node

import gpgmap_ros.nodes
from gpgmap_ros.nodes.guarded_node import GuardedNode

CALLBACKS = {"on_configure", "on_activate", "on_deactivate", "on_cleanup", "on_shutdown", "on_error"}
EXTENDED = {"__init__", "__doc__", "__module__", "destroy_node"}
"""What a class of ours may define again: it calls rclpy's own."""
GUARDED = {
    "add_on_set_parameters_callback",
    "create_publisher",
    "create_service",
    "create_subscription",
    "create_timer",
}
"""What `GuardedNode` wraps, so that no exception of a callback ends the node."""


def node_classes() -> Iterator[type]:
    for module in pkgutil.iter_modules(gpgmap_ros.nodes.__path__):
        loaded = importlib.import_module(f"gpgmap_ros.nodes.{module.name}")
        for value in vars(loaded).values():
            if isinstance(value, type) and issubclass(value, Node) and value.__module__ == loaded.__name__:
                yield value


CLASSES = sorted(set(node_classes()), key=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def attributes() -> dict[type, set[str]]:
    """Names in use on a plain node of rclpy, after it was made."""
    context = rclpy.Context()
    rclpy.init(context=context)
    nodes = [
        Node("plain", context=context, enable_rosout=False),
        LifecycleNode("plain", context=context, enable_rosout=False),
    ]
    names = {type(node): {*dir(node), *vars(node)} for node in nodes}
    for node in nodes:
        node.destroy_node()
    rclpy.shutdown(context=context)
    return names


def assigned(kind: type) -> set[str]:
    """Names that a class defines, or gives to `self` anywhere in its methods."""
    tree = ast.parse(Path(importlib.import_module(kind.__module__).__file__ or "").read_text())
    (body,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__]
    stores = {
        node.attr
        for node in ast.walk(body)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return stores | set(vars(kind))


def test_there_are_nodes_to_look_at() -> None:
    names = {kind.__name__ for kind in CLASSES}
    assert {"MappingNode", "RecordingPlayer", "BagPlayer", "MapRecorder", "Probe"} <= names


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_no_attribute_of_rclpy_is_overwritten(kind: type, attributes: dict[type, set[str]]) -> None:
    base = LifecycleNode if issubclass(kind, LifecycleNode) else Node
    wrapped = GUARDED if kind is GuardedNode else set()
    clashes = (assigned(kind) & attributes[base]) - CALLBACKS - EXTENDED - wrapped
    assert not clashes, f"{kind.__name__} overwrites {sorted(clashes)} of rclpy's {base.__name__}"
