"""What changed between two surveys, by name or as maps."""

from __future__ import annotations

from typing import Any


def compare(a: Any, b: Any, **options: Any) -> Any:
    """What changed from survey a to survey b: runs, map or point files by name, maps, or points (N, 3).

    options: as of `gpgmap_ros.apps.compare.compare`, which does the work; its `.comparison` has the result
    """
    from gpgmap_ros.apps import compare as app  # when called: it reads files, which are above this room

    return app.compare(a, b, **options)
