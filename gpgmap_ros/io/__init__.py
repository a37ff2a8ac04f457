"""Reading and writing: point cloud messages, bags, map files. Used by the command line and the nodes only."""
