"""The interface packages that the set-up builds are the real ones: same wire format, usable over DDS."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: run `make setup`")

# From the metadata of bags recorded by ROS 2 Jazzy: REP-2016 type hashes cover names, types and order of all fields.
TF_MESSAGE_HASH = "RIHS01_e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087"


def type_hash(message_class: type) -> str:
    """As rclpy announces it on the network."""
    import rclpy
    from rclpy.context import Context

    context = Context()
    rclpy.init(context=context)
    node = rclpy.create_node("hash_reader", context=context)
    try:
        node.create_publisher(message_class, "probe", 1)
        (info,) = node.get_publishers_info_by_topic("probe")
        return str(info.topic_type_hash)
    finally:
        node.destroy_node()
        rclpy.shutdown(context=context)


def test_tf_message_is_the_one_everybody_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    from tf2_msgs.msg import TFMessage

    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "OFF")
    assert type_hash(TFMessage) == TF_MESSAGE_HASH


def test_grid_map_has_the_published_fields() -> None:
    from grid_map_msgs.msg import GridMap, GridMapInfo

    assert list(GridMap.get_fields_and_field_types().items()) == [
        ("header", "std_msgs/Header"),
        ("info", "grid_map_msgs/GridMapInfo"),
        ("layers", "sequence<string>"),
        ("basic_layers", "sequence<string>"),
        ("data", "sequence<std_msgs/Float32MultiArray>"),
        ("outer_start_index", "uint16"),
        ("inner_start_index", "uint16"),
    ]
    assert list(GridMapInfo.get_fields_and_field_types()) == ["resolution", "length_x", "length_y", "pose"]


@pytest.mark.parametrize("name", ["tf2_msgs.TFMessage", "grid_map_msgs.GridMap"])
def test_messages_survive_serialisation(name: str) -> None:
    import importlib

    from rclpy.serialization import deserialize_message, serialize_message

    package, class_name = name.split(".")
    message_class = getattr(importlib.import_module(f"{package}.msg"), class_name)
    message = filled(message_class)
    assert deserialize_message(serialize_message(message), message_class) == message


def filled(message_class: type) -> object:
    from geometry_msgs.msg import TransformStamped
    from std_msgs.msg import Float32MultiArray

    message = message_class()
    if hasattr(message, "transforms"):
        transform = TransformStamped(child_frame_id="base_link")
        transform.header.frame_id = "odom"
        transform.transform.rotation.z = 0.5
        message.transforms = [transform, TransformStamped()]
    else:
        message.layers = ["elevation", "variance"]
        message.info.resolution = 0.1
        message.data = [Float32MultiArray(data=[1.0, 2.0]), Float32MultiArray(data=[3.0])]
        message.outer_start_index = 7
    return message
