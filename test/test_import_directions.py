"""Who may import whom. Read from the source, so that an import inside a function counts as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

# A room is a top-level module or folder of a package. It may import itself, and these:
FOUNDATION: set[str] = set()  # the plain modules of gp_core
CORE = {"gp_core", "gp_core.kernels"}
ESTIMATORS = "gp_core.estimators"  # what the scikit-learn estimators share: above the kernels
BANDWIDTH = "gp_core.bandwidth"
SEARCH = "gp_core.search"  # of hyperparameters, for every estimator
# modules of gp_core that use kernels
ABOVE_KERNELS = {"estimators", "bandwidth", "search", "density", "kernel_pca"}
BASE = {"gpgmap_ros", "gpgmap_ros.arrays", "gp_core", "gpgmap_ros.config", "gpgmap_ros.geometry",
        "gpgmap_ros.share", "gpgmap_ros.progress", "gpgmap_ros.deprecation", "gpgmap_ros.diagnostics",
        "gpgmap_ros.memory", "gpgmap_ros.compilation", "gpgmap_ros.optional_packages", "gpgmap_ros.open3d_import",
        "gpgmap_ros.storage", "gpgmap_ros.interpreter", "gpgmap_ros.lazy_names"}  # fmt: skip
MAY_IMPORT = {
    "gp_core": FOUNDATION,
    "gp_core.kernels": {"gp_core"},
    ESTIMATORS: CORE,
    BANDWIDTH: CORE,
    "gp_core.search": CORE | {ESTIMATORS},
    "gp_core.density": CORE | {ESTIMATORS, BANDWIDTH, SEARCH},
    "gp_core.kernel_pca": CORE | {ESTIMATORS},
    "gp_core.regression": CORE | {ESTIMATORS, BANDWIDTH, SEARCH},
    # the prior mean of a latent function is that of regression
    "gp_core.classification": CORE | {ESTIMATORS, BANDWIDTH, SEARCH, "gp_core.regression"},
    "gp_core.grid": CORE,
    "gpgmap_ros": {"gp_core"},  # the version number
    "gpgmap_ros.storage": set(),  # below everything that keeps files
    "gpgmap_ros.config": {"gpgmap_ros.storage"},
    "gpgmap_ros.config_file": {"gpgmap_ros.deprecation"},
    "gpgmap_ros.arrays": {"gp_core"},
    "gpgmap_ros.geometry": {"gpgmap_ros.arrays"},
    "gpgmap_ros.share": set(),
    "gpgmap_ros.deprecation": set(),
    "gpgmap_ros.lazy_names": set(),
    "gpgmap_ros.progress": set(),
    "gpgmap_ros.diagnostics": set(),
    "gpgmap_ros.memory": set(),
    "gpgmap_ros.optional_packages": set(),
    "gpgmap_ros.open3d_import": set(),
    "gpgmap_ros.compilation": set(),
    "gpgmap_ros.interpreter": set(),
    "gpgmap_ros.sensing": BASE,
    "gpgmap_ros.mapping": BASE | CORE | {"gp_core.grid"},
    "gpgmap_ros.closure": BASE | CORE | {"gp_core.grid", "gpgmap_ros.mapping"},
    # what changed between two maps
    "gpgmap_ros.change": BASE | CORE | {"gp_core.grid", "gpgmap_ros.mapping"},
    # the one loop, live and replayed
    "gpgmap_ros.slam": BASE | {"gpgmap_ros.sensing", "gpgmap_ros.mapping", "gpgmap_ros.closure"},
    "gpgmap_ros.pipeline": {"gpgmap_ros.deprecation"},  # old names
    "gpgmap_ros.processes": BASE,
    "gpgmap_ros.io": BASE | {"gp_core.grid", "gpgmap_ros.mapping", "gpgmap_ros.sensing", "gpgmap_ros.slam"},
    "gpgmap_ros.viz": BASE | CORE | {"gp_core.grid", "gpgmap_ros.mapping"},
    "gpgmap_ros.report": BASE
    | {"gp_core.grid", "gpgmap_ros.io", "gpgmap_ros.viz", "gpgmap_ros.mapping", "gpgmap_ros.change"},
    # what the commands do
    "gpgmap_ros.apps": BASE
    | CORE
    | {"gp_core.grid", "gpgmap_ros.sensing", "gpgmap_ros.mapping", "gpgmap_ros.closure", "gpgmap_ros.slam"}
    | {"gpgmap_ros.io", "gpgmap_ros.viz", "gpgmap_ros.report", "gpgmap_ros.change"},
    "gpgmap_ros.demo": BASE
    | CORE
    | {"gpgmap_ros.io", "gpgmap_ros.viz", "gpgmap_ros.processes", "gpgmap_ros.mapping", "gpgmap_ros.sensing"}
    | {"gpgmap_ros.closure", "gpgmap_ros.slam", "gpgmap_ros.report"},
    "gpgmap_ros.cli": BASE
    | {"gpgmap_ros.demo", "gpgmap_ros.io", "gpgmap_ros.viz", "gpgmap_ros.closure"}
    | {"gpgmap_ros.sensing", "gpgmap_ros.apps", "gpgmap_ros.mapping", "gpgmap_ros.change"}
    | {"gpgmap_ros.nodes"},  # `play` and `doctor --live`, inside their functions
    "gpgmap_ros.nodes": BASE
    | {"gpgmap_ros.io", "gpgmap_ros.sensing", "gpgmap_ros.mapping", "gpgmap_ros.closure", "gpgmap_ros.slam"},
}
# The rooms inside gpgmap_ros/closure, and its plain modules: each may import itself, the modules below, and these.
CLOSURE_BASE = {"types", "acceptance", "config", "chi_square", "parallel", "rows"}
CLOSURE_MAY_IMPORT = {
    "registration": CLOSURE_BASE,
    "graph": CLOSURE_BASE,
    "retrieval": CLOSURE_BASE | {"registration", "graph"},
    "session": CLOSURE_BASE | {"graph"},
    "acceptance": {"types", "config", "chi_square"},  # every gate, and no computation
    "types": set[str](),
}
# What only a ROS installation has; `sensor_msgs_py` is pure Python and optional in sensing.
ROS_MODULES = {"rclpy", "tf2_ros", "builtin_interfaces", "std_msgs", "sensor_msgs", "nav_msgs", "geometry_msgs",
               "diagnostic_msgs", "rcl_interfaces", "tf2_msgs", "grid_map_msgs", "visualization_msgs",
               "std_srvs"}  # fmt: skip
ROS_ROOM = "gpgmap_ros.nodes"
UPWARDS = {
    ("gpgmap_ros.mapping.gpgmap", "gpgmap_ros.viz.open3d_mesh.triangle_mesh"),
    ("gpgmap_ros.slam.comparison", "gpgmap_ros.apps.compare"),
}
"""Functions that hand their object to a room above, which is imported when they are called."""


def room_of(module: str, root: Path) -> str:
    """`gpgmap_ros.io.bags` is in the room `gpgmap_ros.io`; a plain module of gp_core is in the room `gp_core`."""
    parts = module.split(".")
    if len(parts) == 1:
        return module
    if parts[0] == "gp_core" and not (root / "gp_core" / parts[1]).is_dir():
        return f"gp_core.{parts[1]}" if parts[1] in ABOVE_KERNELS else "gp_core"
    if parts[0] == "gpgmap_ros" and not (root / "gpgmap_ros" / f"{parts[1]}.py").exists():
        return "gpgmap_ros." + parts[1] if (root / "gpgmap_ros" / parts[1]).is_dir() else "gpgmap_ros"
    return ".".join(parts[:2])


def imports_of(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a file imports; `from a import b` counts as a.b, which may be a module."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]) if base else ".".join(above)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def sources(root: Path) -> list[tuple[Path, str]]:
    found = []
    for package in ("gp_core", "gpgmap_ros"):
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found.append((path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)))
    return found


def test_every_room_is_listed(root: Path) -> None:
    rooms = {room_of(module, root) for _, module in sources(root)}
    assert rooms <= set(MAY_IMPORT), f"rooms without a rule: {sorted(rooms - set(MAY_IMPORT))}"


def test_imports_point_one_way(root: Path) -> None:
    wrong = []
    for path, module in sources(root):
        room = room_of(module, root)
        for line, name in imports_of(path, module):
            if name.split(".")[0] in ("gp_core", "gpgmap_ros"):
                target = room_of(name, root)
                if (module, name) in UPWARDS:
                    continue
                # gp_core/__init__.py names the public classes of all its rooms, lazily
                if target != room and target not in MAY_IMPORT[room] and module != "gp_core":
                    wrong.append(f"{path.relative_to(root)}:{line}: {room} may not import {target}")
    assert not wrong, "\n".join(wrong)


def test_rooms_of_the_closure_point_one_way(root: Path) -> None:
    wrong, seen = [], set()
    prefix = "gpgmap_ros.closure."
    for path, module in sources(root):
        room = module.removeprefix(prefix).split(".")[0]
        if not module.startswith(prefix) or room not in CLOSURE_MAY_IMPORT:
            continue
        seen.add(room)
        for line, name in imports_of(path, module):
            target = name.removeprefix(prefix).split(".")[0]
            if name.startswith(prefix) and target not in CLOSURE_MAY_IMPORT[room] | {room}:
                wrong.append(
                    f"{path.relative_to(root)}:{line}: closure/{room} may not import closure/{target}"
                )
    assert not wrong, "\n".join(wrong)
    assert seen == set(CLOSURE_MAY_IMPORT)


def test_only_the_nodes_import_ros(root: Path) -> None:
    wrong = [
        f"{path.relative_to(root)}:{line}: {name}"
        for path, module in sources(root)
        if room_of(module, root) != ROS_ROOM
        for line, name in imports_of(path, module)
        if name.split(".")[0] in ROS_MODULES
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import gp_core.grid", {"gp_core.grid"}),
        ("from gp_core import grid", {"gp_core.grid"}),
        ("def f():\n    from . import b", {"gpgmap_ros.io.b"}),
        ("from ..mapping.images import x", {"gpgmap_ros.mapping.images.x"}),
    ],
)
def test_the_reader_sees_every_form_of_import(tmp_path: Path, text: str, expected: set[str]) -> None:
    path = tmp_path / "a.py"
    path.write_text(text)
    assert {name for _, name in imports_of(path, "gpgmap_ros.io.a")} == expected
