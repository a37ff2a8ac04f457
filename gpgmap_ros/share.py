"""Where the files that are not code lie: in the source tree, or where the installation put them."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = "gpgmap_ros"


def share_file(*parts: str) -> Path:
    """Path of a file below config/, launch/ or rviz/, as in `share_file("config", "gpgmap.yaml")`."""
    source_tree = Path(__file__).resolve().parent.parent
    # A colcon install has the package under <prefix>/lib/python3.x/site-packages and its files under <prefix>/share.
    prefixes = [Path(sys.prefix), *Path(__file__).resolve().parents]
    candidates = [
        source_tree.joinpath(*parts),
        *(prefix.joinpath("share", PACKAGE, *parts) for prefix in prefixes),
    ]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(
        f"{'/'.join(parts)} is not installed; looked in {candidates[0]} and {candidates[1]}"
    )
