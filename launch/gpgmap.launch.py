"""Start mapping_node: `ros2 launch gpgmap_ros gpgmap.launch.py points:=/lidar/points`.

`ros2 launch gpgmap_ros gpgmap.launch.py --show-args` lists the arguments. An argument that is left empty leaves the
setting to the parameter file.
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.substitutions import FindPackageShare

PACKAGE = "gpgmap_ros"


def share(*parts):
    return PathJoinSubstitution([FindPackageShare(PACKAGE), *parts])


# name, default, what it is for
ARGUMENTS = (
    ("points", "points", "topic of the point clouds (sensor_msgs/PointCloud2)"),
    ("odometry", "odometry", "topic of the poses (nav_msgs/Odometry), for pose_source 'odometry'"),
    ("pose_source", "", "where the sensor's pose comes from: 'tf' or 'odometry' (empty: as in params_file)"),
    ("map_frame", "", "gravity-aligned frame in which the map stands (empty: as in params_file)"),
    ("params_file", share("config", "gpgmap.yaml"), "YAML file with the parameters of the node"),
    (
        "sensor",
        "",
        "settings for a kind of sensor: spinning_lidar, solid_state_lidar or stereo (empty: params_file alone)",
    ),
    ("use_sim_time", "false", "take the time from /clock, as when a bag is replayed: 'true' or 'false'"),
    ("namespace", "", "namespace of the node and of its relative topics"),
    ("rviz", "false", "start RViz with a view of the map: 'true' or 'false'"),
    ("log_level", "info", "debug, info, warn, error or fatal"),
)


def is_true(name, text):
    if text.lower() not in ("true", "false"):
        raise RuntimeError(f"{name}:={text} is neither 'true' nor 'false'")
    return text.lower() == "true"


def start(context):
    """The nodes, once the arguments are known: only then can an empty one be told from a given one."""
    value = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    use_sim_time = {"use_sim_time": is_true("use_sim_time", value["use_sim_time"])}
    sensor = [share("config", f"{value['sensor']}.yaml")] if value["sensor"] else []
    given = {name: value[name] for name in ("pose_source", "map_frame") if value[name]}
    nodes = [
        Node(
            package=PACKAGE,
            executable="mapping_node",
            namespace=value["namespace"],
            parameters=[value["params_file"], *sensor, use_sim_time | given],
            remappings=[("points", value["points"]), ("odometry", value["odometry"])],
            ros_arguments=["--log-level", value["log_level"]],
            output="screen",
        )
    ]
    if is_true("rviz", value["rviz"]):
        fixed_frame = ["-f", value["map_frame"]] if value["map_frame"] else []
        nodes.append(
            Node(
                package="rviz2",
                executable="rviz2",
                namespace=value["namespace"],
                arguments=["-d", share("rviz", "gpgmap.rviz"), *fixed_frame],
                parameters=[use_sim_time],
                remappings=[("points", value["points"])],
            )
        )
    return nodes


def generate_launch_description():
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, default, text in ARGUMENTS
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])
