"""ROS parameters from gpgmap_ros/config: declared with description, unit and range, read back as a checked `Config`."""

from __future__ import annotations

from collections.abc import Iterable

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node
from rclpy.parameter import Parameter

from gpgmap_ros.config import Config, ConfigError, Setting, settings, with_settings

# Names that ROS itself puts among a node's parameters.
ROS_OWN = ("use_sim_time", "start_type_description_service", "qos_overrides.")


def declare(node: Node) -> Config:
    """Declare every setting on the node; return the configuration that launch files and YAML gave it.

    The node must have been made with `automatically_declare_parameters_from_overrides=True`: only so can a misspelt
    name be seen. ConfigError where a name is unknown, or a value has the wrong type or is out of range; a whole number
    does where a float is expected.
    """
    given = {name: parameter.value for name, parameter in node.get_parameters_by_prefix("").items()}
    config = with_settings(
        Config(), {name: value for name, value in given.items() if not name.startswith(ROS_OWN)}
    )
    for item in settings(config):
        if node.has_parameter(item.name):
            node.undeclare_parameter(item.name)
        value = list(item.value) if isinstance(item.value, tuple) else item.value
        node.declare_parameter(item.name, value, descriptor(item), ignore_override=True)
    return config


def apply_changes(config: Config, parameters: Iterable[Parameter]) -> Config:
    """`config` after a change of parameters at run time; ConfigError where one may not be changed, or not so."""
    fixed = {item.name for item in settings() if not item.dynamic}
    changes = {item.name: item.value for item in parameters if not item.name.startswith(ROS_OWN)}
    for name in changes:
        if name in fixed:
            raise ConfigError(f"{name} can be set at start only: restart the node with the new value")
    return with_settings(config, changes)


def descriptor(item: Setting) -> ParameterDescriptor:
    unit = f" [{item.unit}]" if item.unit else ""
    choices = f" One of: {', '.join(item.choices)}." if item.choices else ""
    message = ParameterDescriptor(description=f"{item.meaning}{unit}.{choices}", read_only=not item.dynamic)
    if item.low is not None and item.high is not None:
        if isinstance(item.default, float):
            message.floating_point_range = [
                FloatingPointRange(from_value=float(item.low), to_value=float(item.high))
            ]
        else:
            message.integer_range = [IntegerRange(from_value=int(item.low), to_value=int(item.high), step=1)]
    return message
