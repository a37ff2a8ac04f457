"""The ROS 2 side: the only modules that import rclpy. Thin: the work is done by gpgmap_ros.slam."""
