"""Ten thousand clouds and transforms that lie: none crashes the node, none changes the map, each is counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from client import RosClient
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import TransformStamped
from limits import PATIENCE
from scene import CloudSource
from sensor_msgs.msg import Image, PointCloud2, PointField
from tf2_msgs.msg import TFMessage

CLOUDS = 3_000
PER_ROUND = 4  # between two looks at what the node says: its best-effort queue holds five
UINT32 = 2**32


def truncated(cloud: PointCloud2, rng: np.random.Generator) -> None:
    cloud.data = cloud.data[: int(rng.integers(0, len(cloud.data)))]


def lying_step(cloud: PointCloud2, rng: np.random.Generator) -> None:
    cloud.point_step = int(rng.choice([0, 1, 11, 13, 1000, UINT32 - 1]))


def missing_field(cloud: PointCloud2, rng: np.random.Generator) -> None:
    fields = list(cloud.fields)
    del fields[int(rng.integers(3))]
    cloud.fields = fields


def huge_width(cloud: PointCloud2, rng: np.random.Generator) -> None:
    cloud.width = int(rng.integers(10**6, UINT32))


def huge_height(cloud: PointCloud2, rng: np.random.Generator) -> None:
    cloud.height = int(rng.integers(2, UINT32))
    cloud.row_step = int(rng.integers(0, UINT32))


def wrapped_offset(cloud: PointCloud2, rng: np.random.Generator) -> None:
    """A negative offset as the wire carries it."""
    fields = list(cloud.fields)
    fields[int(rng.integers(3))].offset = UINT32 - int(rng.integers(1, 100))
    cloud.fields = fields


def wrong_type(cloud: PointCloud2, rng: np.random.Generator) -> None:
    fields = list(cloud.fields)
    fields[int(rng.integers(3))].datatype = int(rng.choice([0, 9, 77, 255]))
    cloud.fields = fields


def strange_count(cloud: PointCloud2, rng: np.random.Generator) -> None:
    cloud.fields = [
        PointField(name=f.name, offset=f.offset, datatype=f.datatype, count=9) for f in cloud.fields
    ]


def not_finite(cloud: PointCloud2, rng: np.random.Generator) -> None:
    cloud.data = np.full(1500, rng.choice([np.nan, np.inf, -np.inf]), dtype=np.float32).tobytes()


def far_away(cloud: PointCloud2, rng: np.random.Generator) -> None:
    cloud.data = np.full(1500, 10.0 ** rng.integers(5, 38), dtype=np.float32).tobytes()


def empty(cloud: PointCloud2, rng: np.random.Generator) -> None:
    cloud.width, cloud.data = 0, b""


def wrong_frame(cloud: PointCloud2, rng: np.random.Generator) -> None:
    cloud.header.frame_id = str(rng.choice(["", "/", "nowhere", "lidar ", "bad", "x" * 1000]))


def wrong_time(cloud: PointCloud2, rng: np.random.Generator) -> None:
    cloud.header.stamp.sec = 2**31 - 1


LIES: list[Callable[[PointCloud2, np.random.Generator], None]] = [
    truncated, lying_step, missing_field, huge_width, huge_height, wrapped_offset, wrong_type, strange_count,
    not_finite, far_away, empty, wrong_frame, wrong_time,
]  # fmt: skip


def absurd_transform(rng: np.random.Generator) -> TransformStamped:
    transform = TransformStamped(child_frame_id=str(rng.choice(["bad", "odom", "", "lidar"])))
    transform.header.frame_id = str(rng.choice(["odom", "bad"]))
    transform.transform.rotation.w = float(rng.choice([0.0, np.nan, np.inf]))
    transform.transform.translation.x = float(rng.choice([0.0, np.nan, -np.inf]))
    return transform


@pytest.mark.slow
def test_nothing_that_lies_gets_into_the_map(client: RosClient, start_node: Any) -> None:
    small = {"size_x": 2.0, "size_y": 2.0, "resolution": 0.2}
    arguments = [part for name, value in small.items() for part in ("-p", f"mapping.{name}:={value}")]
    node = start_node(*arguments, "-p", "transform_timeout:=0.0", "-p", "queue_size:=1000")
    images, diagnostics = client.listen(Image, "/mapping_node/elevation"), {}
    client.node.create_subscription(
        DiagnosticArray,
        "/diagnostics",
        lambda m: diagnostics.update({v.key: v.value for v in m.status[0].values}),
        10,
    )
    source = CloudSource(client)
    client.spin_until(lambda: source.publish() or images, "a map")

    def accounted() -> bool:
        """Whether the newest diagnostics know what became of each cloud."""
        dropped = sum(int(value) for key, value in diagnostics.items() if key.startswith("clouds dropped"))
        return dropped + int(diagnostics.get("clouds used", -1)) == int(diagnostics.get("clouds received", 0))

    client.spin_until_quiet(images)
    diagnostics.clear()
    client.spin_until(accounted, "the node to account for the first clouds")
    client.spin_until_quiet(images)
    before, used = images[-1], int(diagnostics["clouds used"])
    already = int(diagnostics["clouds received"])

    rng = np.random.default_rng(0)
    clouds = client.node.create_publisher(PointCloud2, "/points", 1000)
    transforms = client.node.create_publisher(TFMessage, "/tf", 1000)
    client.spin_until(clouds.get_subscription_count, "the node's subscription")
    sent, deadline = 0, time.monotonic() + PATIENCE
    while sent < CLOUDS or int(diagnostics["clouds received"]) - already < CLOUDS:
        for _ in range(PER_ROUND):
            cloud = source.cloud()
            LIES[int(rng.integers(len(LIES)))](cloud, rng)
            clouds.publish(cloud)
            sent += 1
        transforms.publish(TFMessage(transforms=[absurd_transform(rng)]))
        client.spin_once()
        node.check()
        assert time.monotonic() < deadline, f"{sent} clouds sent, the node counts {diagnostics}"

    client.spin_until(accounted, "the node to account for every cloud")
    assert int(diagnostics["clouds used"]) == used
    assert node.running()
    client.spin_until_quiet(images)
    assert images[-1] == before or images[-1].data == before.data
    assert "Traceback" not in node.tail(1000)
