"""The map folder of a node: its own while the node is configured."""

from __future__ import annotations

from pathlib import Path

from rclpy.node import Node

from gpgmap_ros.storage.atomic import remove_abandoned
from gpgmap_ros.storage.folder_lock import FolderLock


def lock_map_folder(node: Node, name: str) -> FolderLock | None:
    """Lock the folder, and remove what killed processes left half written; None where there is no folder.

    FolderInUse where another process writes there: two would overwrite each other's submaps.
    """
    if not name:
        return None
    folder = Path(name).expanduser()
    owner = f"mapping_node '{node.get_fully_qualified_name()}'"
    lock = FolderLock(folder, owner, "set map_folder to another folder")
    for part in (folder, folder / "submaps"):
        if left := remove_abandoned(part):
            node.get_logger().info(f"{part}: {len(left)} unfinished files of killed processes are removed")
    return lock
