"""What the node does live, done from files: replay, surveys, tuning, evaluation. No ROS, no printing."""
