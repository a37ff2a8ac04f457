"""The places that must say the same: versions, dependencies, arguments, documentation."""

from __future__ import annotations

import re
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import yaml

import gpgmap_ros
from gpgmap_ros.config import settings

# PyPI name -> rosdep key. None: comes with another package or is not in rosdep; docs/dependencies.md says which.
ROSDEP_KEYS = {
    "numpy": "python3-numpy",
    "scipy": "python3-scipy",
    "numba": "python3-numba",
    "scikit-learn": "python3-sklearn",
    "PyYAML": "python3-yaml",
    "matplotlib": "python3-matplotlib",
    "rosbags": None,
    "threadpoolctl": None,
    "laspy": None,
    "lazrs": None,
}


def named(path: Path) -> set[str]:
    """Names of the packages in a requirements file."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return {re.split(r"[<>=\[ ]", line)[0] for line in lines if line and not line.startswith(("#", "-"))}


def manifest(root: Path) -> ElementTree.Element:
    return ElementTree.parse(root / "package.xml").getroot()


def changelog(root: Path) -> str:
    return (root / "CHANGELOG.md").read_text()


def test_one_version(root: Path) -> None:
    assert manifest(root).findtext("version") == gpgmap_ros.__version__
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    assert citation["version"] == gpgmap_ros.__version__
    assert citation["license"] == manifest(root).findtext("license")
    (newest,) = re.findall(r"^## Unreleased$.*?^## (\S+) - (\S+)$", changelog(root), re.MULTILINE | re.DOTALL)
    assert newest == (gpgmap_ros.__version__, str(citation["date-released"]))


def test_the_version_has_one_home(root: Path) -> None:
    written = [
        path.relative_to(root).as_posix()
        for package in ("gp_core", "gpgmap_ros")
        for path in (root / package).rglob("*.py")
        if re.search(r"^__version__ = ", path.read_text(), re.MULTILINE)
    ]
    assert written == ["gp_core/__init__.py"]


def test_one_address(root: Path) -> None:
    """Reports, reviews and the manifests reach the same people."""
    maintainer = manifest(root).find("maintainer")
    assert maintainer is not None
    address = maintainer.get("email")
    assert address
    for name in ("setup.py", "SECURITY.md", "CITATION.cff", ".github/CODEOWNERS"):
        assert address in (root / name).read_text(), name


def test_templates_ask_for_the_doctor(root: Path) -> None:
    folder = root / ".github"
    templates = [*sorted((folder / "ISSUE_TEMPLATE").glob("*.md")), folder / "pull_request_template.md"]
    assert len(templates) >= 3
    assert all("`gpgmap doctor`" in path.read_text() for path in templates)


WORKFLOW_COMMANDS = {
    "checks.yml": "make PYTHON=python lint",
    "tests.yml": "make PYTHON=python test",
    "colcon.yml": "colcon build --packages-select gpgmap_ros",
    "docs.yml": "make PYTHON=python docs",
    "wheels.yml": "python -m build",
}


def test_workflows_run_what_they_are_named_for(root: Path) -> None:
    folder = root / ".github" / "workflows"
    assert {path.name for path in folder.iterdir()} == set(WORKFLOW_COMMANDS)
    for name, command in WORKFLOW_COMMANDS.items():
        text = (folder / name).read_text()
        steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
        assert any(command in step.get("run", "") for step in steps), name
        assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in steps if "uses" in step), (
            name
        )
        assert "secrets." not in text


def test_workflows_test_every_supported_python(root: Path) -> None:
    jobs = yaml.safe_load((root / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12"]
    assert any("test-robot" in step.get("run", "") for step in jobs["robot"]["steps"])


def test_hooks_run_what_make_lint_runs(root: Path) -> None:
    (local,) = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = {hook["entry"].replace(" --force-exclude", "") for hook in local["hooks"]}
    recipe = (root / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    commands = re.findall(r'"\$\(BIN\)/(\w+)"(.*)', recipe)
    assert hooks == {f".venv/bin/{tool}{arguments.removesuffix(' .')}" for tool, arguments in commands}


def test_package_xml_names_the_runtime_dependencies(root: Path) -> None:
    runtime = named(root / "requirements" / "runtime.in")
    assert runtime == set(ROSDEP_KEYS)
    declared = {item.text for item in manifest(root).findall("exec_depend")}
    python = {key for key in declared if key and key.startswith("python3-")}
    assert python == {key for key in ROSDEP_KEYS.values() if key}


def test_package_xml_names_what_the_nodes_and_launch_files_import(root: Path) -> None:
    declared = {item.text for item in manifest(root).findall("exec_depend")}
    text = "\n".join(
        path.read_text() for folder in ("gpgmap_ros", "launch") for path in (root / folder).rglob("*.py")
    )
    imported = set(re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE))
    ros = {
        name
        for name in imported
        if re.search(
            r"_msgs$|_srvs$|_interfaces$|^rclpy$|^launch|^sensor_msgs_py$|^ament_index_python$", name
        )
    }
    assert ros <= declared, f"missing in package.xml: {sorted(ros - declared)}"


def test_a_robot_without_a_screen_needs_no_rviz(root: Path) -> None:
    declared = {item.text for item in manifest(root).iter() if item.tag.endswith("depend")}
    assert not [name for name in declared if name and "rviz" in name]


def test_every_dependency_has_its_reason(root: Path) -> None:
    text = (root / "docs" / "dependencies.md").read_text()
    for name in ("build.in", "runtime.in", "run.in", "dev.in", "docs.in"):
        missing = {item for item in named(root / "requirements" / name) if f"`{item}`" not in text}
        assert not missing, (
            f"docs/dependencies.md says nothing about {sorted(missing)} of requirements/{name}"
        )


def test_the_locks_hold_what_is_named(root: Path) -> None:
    for source, lock in (
        ("build", "build"),
        ("runtime", "run"),
        ("run", "run"),
        ("dev", "dev"),
        ("docs", "docs"),
        ("ros", "ros"),
        ("robot", "robot"),
        ("lock", "lock"),
        ("sbom", "sbom"),
    ):
        locked = (root / "requirements" / f"{lock}.lock.txt").read_text().lower()
        for name in named(root / "requirements" / f"{source}.in"):
            assert re.search(rf"^{re.escape(name.lower())}==.*\\\n\s+--hash=sha256", locked, re.MULTILINE), (
                lock,
                name,
            )


def test_the_locks_agree(root: Path) -> None:
    """Run and dev are installed into one environment: a package in both has one version per Python."""
    pattern = re.compile(r"^(\S+==[^\s\\]+(?: ; [^\\]+)?)", re.MULTILINE)
    run, dev = (
        {line.strip() for line in pattern.findall((root / "requirements" / f"{name}.lock.txt").read_text())}
        for name in ("run", "dev")
    )
    names = {line.split("==")[0] for line in run}
    same = {line.split(" ;")[0] for line in dev if line.split("==")[0] in names}
    assert same == {line.split(" ;")[0] for line in run}


def test_every_launch_argument_is_documented(root: Path) -> None:
    launch = (root / "launch" / "gpgmap.launch.py").read_text()
    arguments = re.findall(r'^    \("(\w+)", ', launch, re.MULTILINE)
    assert len(arguments) >= 9
    text = (root / "docs" / "ros.md").read_text()
    missing = [name for name in arguments if f"`{name}`" not in text]
    assert not missing


def test_one_oldest_python(root: Path) -> None:
    """What setup.py promises is what the set-up accepts, the checks read the code as, and the README says."""
    promised = re.search(r'python_requires=">=(\d+\.\d+)"', (root / "setup.py").read_text())
    assert promised
    oldest = promised[1]
    settings = (root / "pyproject.toml").read_text()
    assert f'python_version = "{oldest}"' in settings
    assert f'target-version = "py{oldest.replace(".", "")}"' in settings
    assert f"Python {oldest}" in (root / "README.md").read_text()
    assert f"({oldest.replace('.', ', ')})" in (root / "tools" / "setup.sh").read_text()


def test_the_robot_lacks_what_rosdep_lacks(root: Path) -> None:
    """`make test-robot` means something only while nothing of pip's own sneaks in."""
    locked = (root / "requirements" / "robot.lock.txt").read_text().lower()
    for name in ("gtsam", "rosbags", "laspy", "lazrs", "open3d-cpu"):
        assert not re.search(rf"^{name}==", locked, re.MULTILINE), name


def test_what_is_called_optional_is_not_installed_for_everybody(root: Path) -> None:
    """The extras of setup.py, which docs/dependencies.md calls optional, are in the lock of no plain installation."""
    locked = (root / "requirements" / "run.lock.txt").read_text().lower()
    assert not re.search(r"^gtsam==", locked, re.MULTILINE)
    assert "`gtsam`" in (root / "docs" / "dependencies.md").read_text()


def test_the_launch_file_knows_every_kind_of_sensor(root: Path) -> None:
    launch = (root / "launch" / "gpgmap.launch.py").read_text()
    (listed,) = re.findall(r"^SENSORS = \((.*)\)$", launch, re.MULTILINE)
    (choices,) = [item.choices for item in settings() if item.name == "noise.sensor"]
    assert tuple(re.findall(r'"(\w+)"', listed)) == choices
    assert all((root / "config" / f"{sensor}.yaml").is_file() for sensor in choices)


def test_the_hook_for_types_covers_both_packages(root: Path) -> None:
    (local,) = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())["repos"]
    (pattern,) = [hook["files"] for hook in local["hooks"] if hook["id"] == "mypy"]
    assert all(re.search(pattern, f"{package}/a.py") for package in ("gp_core", "gpgmap_ros"))
    settings_of_mypy = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings_of_mypy["packages"] == ["gp_core", "gpgmap_ros"]
    assert settings_of_mypy["strict"]
