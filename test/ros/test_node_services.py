"""Lifecycle, services and parameters of the running node, called over DDS."""

from __future__ import annotations

from typing import Any

import pytest
from child_text import wait_for_text
from client import RosClient
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from limits import PATIENCE
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import DescribeParameters, GetParameters, SetParameters
from rclpy.qos import ReliabilityPolicy
from scene import CloudSource
from sensor_msgs.msg import Image
from std_srvs.srv import SetBool, Trigger

from gpgmap_ros.sensing.messages import nanoseconds
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

CLOUD_QOS = "qos_overrides./points.subscription"
SMALL = ("-p", "mapping.size_x:=2.0", "-p", "mapping.size_y:=2.0", "-p", "mapping.resolution:=0.2")


def change_state(client: RosClient, transition: int) -> bool:
    request = ChangeState.Request(transition=Transition(id=transition))
    return bool(client.call(ChangeState, "/mapping_node/change_state", request).success)


def state(client: RosClient) -> str:
    return str(client.call(GetState, "/mapping_node/get_state", GetState.Request()).current_state.label)


def newest(images: list[Image]) -> int:
    """Stamp of the newest map, nanoseconds: that of the last cloud in it, however late the map comes."""
    return max(nanoseconds(image.header.stamp) for image in images)


def test_it_starts_by_itself(client: RosClient, start_node: Any) -> None:
    start_node(*SMALL)
    client.spin_until(lambda: state(client) == "active", "the active state")


def test_the_life_of_a_managed_node(client: RosClient, start_node: Any) -> None:
    node = start_node(*SMALL, "-p", "autostart:=false")
    assert state(client) == "unconfigured"
    assert change_state(client, Transition.TRANSITION_CONFIGURE)
    assert state(client) == "inactive"
    assert change_state(client, Transition.TRANSITION_ACTIVATE)
    images = client.listen(Image, "/mapping_node/elevation")
    source = CloudSource(client)
    client.spin_until(lambda: source.publish() or images, "a map while active")
    assert change_state(client, Transition.TRANSITION_DEACTIVATE)
    last = source.stamp
    for _ in range(5):
        source.publish()
    client.spin_until_quiet(images)
    assert newest(images) <= last
    # the map is still there, and goes on
    assert change_state(client, Transition.TRANSITION_ACTIVATE)
    last = source.stamp
    client.spin_until(lambda: source.publish() or newest(images) > last, "a map after activating again")
    assert change_state(client, Transition.TRANSITION_DEACTIVATE)
    assert change_state(client, Transition.TRANSITION_CLEANUP)
    assert state(client) == "unconfigured"
    assert change_state(client, Transition.TRANSITION_CONFIGURE)
    assert node.running()


def test_an_impossible_transition_is_refused_and_the_node_lives_on(
    client: RosClient, start_node: Any
) -> None:
    node = start_node(*SMALL, "-p", "autostart:=false")
    assert not change_state(client, Transition.TRANSITION_ACTIVATE)
    assert not change_state(client, 77)
    assert change_state(client, Transition.TRANSITION_CONFIGURE)
    assert node.running()
    assert "refused: it is not possible in the present state" in node.tail(50)


def test_reset_and_pause(client: RosClient, start_node: Any) -> None:
    node = start_node(*SMALL)
    images = client.listen(Image, "/mapping_node/variance")
    source = CloudSource(client)
    client.spin_until(lambda: source.publish() or images, "a map")
    answer = client.call(SetBool, "/mapping_node/pause", SetBool.Request(data=True))
    assert answer.success
    assert "paused" in answer.message
    last = source.stamp
    for _ in range(5):
        source.publish()
    client.spin_until_quiet(images)
    assert newest(images) <= last
    assert client.call(SetBool, "/mapping_node/pause", SetBool.Request(data=False)).success
    last = source.stamp
    client.spin_until(lambda: source.publish() or newest(images) > last, "a map after resuming")
    answer = client.call(Trigger, "/mapping_node/reset", Trigger.Request())
    assert answer.success
    assert "map reset: asked to by service" in node.tail(50)


def test_a_reset_without_a_map_says_so(client: RosClient, start_node: Any) -> None:
    start_node(*SMALL, "-p", "autostart:=false")
    answer = client.call(Trigger, "/mapping_node/reset", Trigger.Request())
    assert not answer.success
    assert "configure the node first" in answer.message


def test_a_late_subscriber_gets_the_last_map(client: RosClient, start_node: Any) -> None:
    start_node(*SMALL)
    images = client.listen(Image, "/mapping_node/elevation")
    source = CloudSource(client)
    client.spin_until(lambda: source.publish() or images, "a map")
    client.spin_until_quiet(images)
    late = client.listen(Image, "/mapping_node/gradient_x")
    client.spin_until(
        lambda: late and late[-1].header.stamp == images[-1].header.stamp,
        "the last map on a topic that nobody listened to before",
    )


def set_parameter(client: RosClient, name: str, value: ParameterValue) -> Any:
    request = SetParameters.Request(parameters=[Parameter(name=name, value=value)])
    (result,) = client.call(SetParameters, "/mapping_node/set_parameters", request).results
    return result


def number(value: float) -> ParameterValue:
    return ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=value)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("publish_rate", number(2.0), None),
        ("publish_rate", number(-2.0), "range"),
        ("mapping.resolution", number(0.2), "read-only"),
    ],
)
def test_parameters_change_at_run_time_or_are_refused(
    client: RosClient, start_node: Any, name: str, value: ParameterValue, reason: str | None
) -> None:
    start_node(*SMALL)
    result = set_parameter(client, name, value)
    assert result.successful == (reason is None), result.reason
    if reason:
        assert reason in result.reason


def count_of(client: RosClient, name: str) -> int:
    """What the node counts now: its next diagnostics."""
    statuses = client.listen(DiagnosticArray, "/diagnostics", 10)
    client.spin_until(lambda: statuses, "diagnostics")
    return int({item.key: item.value for item in statuses[0].status[0].values}[name])


def test_nobody_waits_for_a_cloud_that_waits_for_its_pose(client: RosClient, start_node: Any) -> None:
    start_node(*SMALL, "-p", "transform_timeout:=50.0")
    images = client.listen(Image, "/mapping_node/elevation")
    source = CloudSource(client)
    client.spin_until(lambda: source.publish() or images, "a map")
    received = count_of(client, "clouds received")
    source.stamp += NANOSECONDS
    client.spin_until(
        lambda: source.publish_cloud() or count_of(client, "clouds received") > received,
        "the cloud, whose transform is not there yet, to be received",
    )
    assert set_parameter(client, "publish_rate", number(9.0)).successful
    assert client.call(SetBool, "/mapping_node/pause", SetBool.Request(data=False)).success
    assert newest(images) < source.stamp
    source.publish_transform()
    client.spin_until(lambda: newest(images) == source.stamp, "the map with the cloud that waited")


def test_parameters_are_described(client: RosClient, start_node: Any) -> None:
    start_node(*SMALL)
    request = DescribeParameters.Request(names=["mapping.resolution", "publish_rate", "queue_size"])
    resolution, rate, queue = client.call(
        DescribeParameters, "/mapping_node/describe_parameters", request
    ).descriptors
    assert resolution.description == "edge of a cell [m]."
    assert resolution.read_only
    assert not rate.read_only
    assert rate.floating_point_range[0].to_value == 100.0
    assert queue.integer_range[0].from_value == 1


def test_a_silent_topic_is_explained(client: RosClient, start_node: Any) -> None:
    node = start_node(*SMALL)
    client.node.create_publisher(Image, "/points_image", 1)
    source = CloudSource(client, topic="/front/points")
    source.publish()
    wait_for_text(
        node, "nobody publishes on '/points' (clouds are on /front/points: remap with points:=/front/points)"
    )


@pytest.mark.parametrize(
    ("arguments", "reliability", "depth"),
    [
        ((), ReliabilityPolicy.BEST_EFFORT, 5),
        (("reliability:=reliable", "depth:=70"), ReliabilityPolicy.RELIABLE, 70),
    ],
)
def test_the_quality_of_service_of_clouds_can_be_chosen(
    client: RosClient, start_node: Any, arguments: tuple[str, ...], reliability: ReliabilityPolicy, depth: int
) -> None:
    start_node(*SMALL, *(part for text in arguments for part in ("-p", f"{CLOUD_QOS}.{text}")))
    client.spin_until(lambda: client.node.get_subscriptions_info_by_topic("/points"), "the subscription")
    (found,) = client.node.get_subscriptions_info_by_topic("/points")
    assert found.qos_profile.reliability == reliability
    request = GetParameters.Request(names=[f"{CLOUD_QOS}.depth"])
    (value,) = client.call(GetParameters, "/mapping_node/get_parameters", request).values
    assert value.integer_value == depth  # the graph does not tell it


def test_a_quality_of_service_that_there_is_not_is_refused(start_node: Any) -> None:
    node = start_node(*SMALL, "-p", f"{CLOUD_QOS}.reliability:=sometimes")
    assert node.wait(PATIENCE) == 1
    assert "QoS override for policy `reliability`: `sometimes`" in node.tail(20)
    assert "Traceback" not in node.tail(50)
