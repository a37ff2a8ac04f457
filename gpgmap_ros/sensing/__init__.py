"""From sensor data to clouds with poses, without rclpy: the node and replay use the same classes.

cloud              one scan: points, their times, stamp, frame (pointcloud2 and point_times read the message)
messages           transforms and poses out of ROS messages, as plain numbers
transform_buffer   transforms by frame and time, interpolated
pose_source        the interface: `PoseSource.locate(cloud) -> SensorPose`
sources            its implementations (tf_source, odometry_source, lidar_source, still_source); source_setup: what they
                   are made with; file_source: one more, for trajectory files
lidar_odometry     registers each scan to those before it (odometry_process: in a process of its own);
                   ground_level finds the vertical from the ground
deskewing          points moved to the stamp of their cloud, along the motion that scan_motion asks a source for
pose_filter        which poses are used: by their stamps (live, stamp_quarantine), by the robot's motion (recordings,
                   continuity)
waiting            clouds that wait until their poses are known

A new source of poses is one file with a `PoseSource` in it, and a row in `sources.SOURCES`.
"""

from gpgmap_ros.sensing.cloud import Cloud, decode_cloud
from gpgmap_ros.sensing.pointcloud2 import CloudError, read_xyz
from gpgmap_ros.sensing.pose_source import PoseSource, SensorPose
from gpgmap_ros.sensing.sources import SOURCES, SourceSetup, make_source
from gpgmap_ros.sensing.transform_buffer import TransformBuffer, TransformUnavailable

__all__ = [
    "SOURCES",
    "Cloud",
    "CloudError",
    "PoseSource",
    "SensorPose",
    "SourceSetup",
    "TransformBuffer",
    "TransformUnavailable",
    "decode_cloud",
    "make_source",
    "read_xyz",
]
