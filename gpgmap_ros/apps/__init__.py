"""What the commands do: one module for each task, without argument parsing and without ROS."""
