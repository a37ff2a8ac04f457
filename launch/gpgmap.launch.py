"""Start mapping_node: `ros2 launch gpgmap_ros gpgmap.launch.py points:=/lidar/points`.

`ros2 launch gpgmap_ros gpgmap.launch.py --show-args` lists the arguments. An argument that is left empty leaves the
setting to the parameter file.
"""

from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_prefix
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

PACKAGE = "gpgmap_ros"
SHARE = Path(__file__).resolve().parent.parent
SENSORS = ("spinning_lidar", "solid_state_lidar", "stereo")
LOG_LEVELS = ("debug", "info", "warn", "error", "fatal")


# name, default, what it is for
ARGUMENTS = (
    ("points", "points", "topic of the point clouds (sensor_msgs/PointCloud2)"),
    ("odometry", "odometry", "topic of the poses (nav_msgs/Odometry), for pose_source 'odometry'"),
    ("imu", "imu", "topic of the IMU (sensor_msgs/Imu), used where there is one"),
    ("gps", "gps/fix", "topic of GPS fixes (sensor_msgs/NavSatFix), used where there are some"),
    (
        "pose_source",
        "",
        "where the sensor's pose comes from: 'tf', 'odometry' or 'lidar' (empty: as in params_file)",
    ),
    ("map_frame", "", "gravity-aligned frame in which the map stands (empty: as in params_file)"),
    ("params_file", str(SHARE / "config" / "gpgmap.yaml"), "YAML file with the parameters of the node"),
    ("sensor", "", f"settings for a kind of sensor: {', '.join(SENSORS)} (empty: params_file alone)"),
    (
        "tf",
        "/tf",
        "topic of the transforms; static ones come on the same name with _static: for several robots",
    ),
    (
        "publish_tf",
        "",
        "whether to publish closure.frame -> map_frame on /tf: 'true' where nothing else does, or 'false' "
        "(empty: as in params_file)",
    ),
    ("use_sim_time", "false", "take the time from /clock, as when a bag is replayed: 'true' or 'false'"),
    ("namespace", "", "namespace of the node and of its relative topics"),
    ("rviz", "false", "start RViz with a view of the map: 'true' or 'false'"),
    ("log_level", "info", f"one of {', '.join(LOG_LEVELS)}"),
)


def is_true(name, text):
    return one_of(name, text.lower(), ("true", "false")) == "true"


def one_of(name, text, allowed):
    if text not in allowed:
        raise RuntimeError(f"{name}:={text} is none of {', '.join(allowed)}")
    return text


def parameter_files(params_file, sensor):
    """Files that are there: launch_ros would start the node without a missing one."""
    shipped = SHARE / "config"
    if not Path(params_file).is_file():
        there = ", ".join(sorted(path.name for path in shipped.glob("*.yaml")))
        raise RuntimeError(f"params_file:={params_file} is no file; in {shipped} there are {there}")
    if sensor:
        one_of("sensor", sensor, SENSORS)
    return [params_file, *([str(shipped / f"{sensor}.yaml")] if sensor else [])]


def check_rviz():
    """Before anything is started: a node would be left behind by what fails after it."""
    try:
        get_package_prefix("rviz2")
    except PackageNotFoundError:
        raise RuntimeError(
            "rviz:=true needs rviz2, which is not installed: install the packages rviz2 and grid_map_rviz_plugin of "
            "your ROS distribution, or leave rviz out and look at the topics from another computer"
        ) from None


def start(context):
    """The nodes, once the arguments are known: only then can an empty one be told from a given one."""
    value = {name: LaunchConfiguration(name).perform(context) for name, _, _ in ARGUMENTS}
    use_sim_time = {"use_sim_time": is_true("use_sim_time", value["use_sim_time"])}
    rviz = is_true("rviz", value["rviz"])
    map_frame = value["map_frame"].lstrip("/")  # ROS 1's names began with a slash
    given = {
        name: text for name, text in (("pose_source", value["pose_source"]), ("map_frame", map_frame)) if text
    }
    if value["publish_tf"]:
        given["closure.publish_tf"] = is_true("publish_tf", value["publish_tf"])
    one_of("log_level", value["log_level"].lower(), LOG_LEVELS)
    files = parameter_files(value["params_file"], value["sensor"])
    tf = [("/tf", value["tf"]), ("/tf_static", f"{value['tf']}_static")] if value["tf"] != "/tf" else []
    actions = [
        Node(
            package=PACKAGE,
            executable="mapping_node",
            namespace=value["namespace"],
            parameters=[*files, use_sim_time | given],
            remappings=[
                ("points", value["points"]),
                ("odometry", value["odometry"]),
                ("imu", value["imu"]),
                ("gps/fix", value["gps"]),
                *tf,
            ],
            ros_arguments=["--log-level", value["log_level"]],
            output="screen",
        )
    ]
    if rviz:
        check_rviz()
        fixed_frame = ["-f", map_frame] if map_frame else []
        actions.append(
            Node(
                package="rviz2",
                executable="rviz2",
                namespace=value["namespace"],
                arguments=["-d", str(SHARE / "rviz" / "gpgmap.rviz"), *fixed_frame],
                parameters=[use_sim_time],
                remappings=[("points", value["points"]), *tf],
            )
        )
        if not given.get("closure.publish_tf"):
            actions.append(
                LogInfo(
                    msg="RViz: the corrected path, the loop closures and the global map stand in closure.frame; they "
                    "are shown where /tf connects it with map_frame: publish_tf:=true, if nothing else publishes that"
                )
            )
    return actions


def generate_launch_description():
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, default, text in ARGUMENTS
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])
