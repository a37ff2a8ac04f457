"""The documentation says what the code does."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml


@pytest.fixture(scope="module")
def make_docs(root: Path) -> ModuleType:
    return loaded(root / "tools" / "make_docs.py")


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_settings_is_current(root: Path, make_docs: ModuleType) -> None:
    text = (root / "docs" / "ros.md").read_text()
    assert text == make_docs.with_settings(text), "docs/ros.md is out of date: run `make docs`"


def test_figures_are_those_that_were_recorded(make_docs: ModuleType) -> None:
    quoted = set()
    for page in make_docs.pages():
        text = page.read_text()
        assert text == make_docs.with_figures(text), f"{page.name} is out of date: run `make docs`"
        quoted |= {f"{mark[2]}.{mark[3]}" for mark in make_docs.FIGURE.finditer(text)}
        assert text.count("<!-- figure ") == len(make_docs.FIGURE.findall(text)), (
            f"{page.name}: a mark has no end"
        )
    assert {"nclt_replay.compared", "nclt_replay.accepted", "nclt_loop.after_m"} <= quoted


def test_a_figure_that_changes_changes_the_page(make_docs: ModuleType) -> None:
    text = "of <!-- figure nclt_replay.compared -->37<!-- end --> comparisons"
    recorded = json.loads(make_docs.FIGURES.read_text())["nclt_replay"]["values"]["compared"]
    assert make_docs.with_figures(text) == text.replace("37", str(recorded))
    with pytest.raises(KeyError, match="nobody"):
        make_docs.with_figures("<!-- figure nobody.compared -->1<!-- end -->")


@pytest.mark.slow
def test_the_recorded_replay_is_what_the_command_says(root: Path, data_folder: Path, tmp_path: Path) -> None:
    """The command gives the figures that the pages quote; comparisons may differ a little by machine."""
    pytest.importorskip("rosbags", reason="rosbags is not installed: the recording can't be read")
    recorded = json.loads((root / "docs" / "figures.json").read_text())["nclt_replay"]
    assert recorded["command"] == "gpgmap replay bag_nclt_loop"
    command = [sys.executable, "-m", "gpgmap_ros.cli", "replay", str(data_folder / "bag_nclt_loop")]
    said = subprocess.run(
        [*command, "--out", str(tmp_path / "out"), "--json"],
        check=True, capture_output=True, text=True, cwd=root,
    ).stdout  # fmt: skip
    sys.path.insert(0, str(root / "benchmark"))
    try:
        now = loaded(root / "benchmark" / "command_line.py").replay_figures(json.loads(said))
    finally:
        sys.path.remove(str(root / "benchmark"))
    values = recorded["values"]
    for name in ("clouds", "seconds", "way_m", "submaps", "cell_m", "accepted"):
        assert now[name] == values[name], (
            f"{name}: run `python benchmark/command_line.py --record` and `make docs`"
        )
    assert abs(now["compared"] - values["compared"]) <= 2
    assert abs(float(now["largest_correction_m"]) - float(values["largest_correction_m"])) < 0.3


def test_every_topic_is_documented(root: Path) -> None:
    pytest.importorskip("rclpy", reason="rclpy is not installed: run `make setup`")
    from gpgmap_ros.nodes.outputs import OUTPUTS

    text = (root / "docs" / "ros.md").read_text()
    assert not [topic for topic in OUTPUTS if f"`~/{topic}`" not in text]


def test_links_between_pages_lead_somewhere(root: Path) -> None:
    broken = []
    for page in [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "interfaces").glob("*.md")]:
        text = page.read_text()
        pictures = re.findall(r'<img [^>]*\bsrc="([^"]+)"', text)
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text) + pictures:
            if not target.startswith(("http:", "https:")) and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(root)}: {target}")
    assert not broken, "\n".join(broken)


def edited_pages(root: Path) -> list[Path]:
    """Pages that are written by hand, those of the models and the galleries aside."""
    return [*root.glob("*.md"), *(root / "docs").glob("*.md"), *(root / "docs" / "api").glob("*.md")]


EXAMPLES = {"scipy.py"}
"""Files that users may have, and we have not."""


def test_files_that_the_pages_name_exist(root: Path) -> None:
    """A path from the root, or the end of one: `grid/solvers.py` and `solvers.py` are both found."""
    files = [
        "/" + path.relative_to(root).as_posix()
        for folder in ("gp_core", "gpgmap_ros", "benchmark", "test", "tools", "docs", "launch")
        for path in (root / folder).rglob("*.py")
    ]
    files += ["/" + path.name for path in root.glob("*.py")]
    missing = [
        f"{page.relative_to(root)}: {name}"
        for page in code_pages(root)
        for name in re.findall(r"(?<![\w./{])[\w./]*\w\.py\b", page.read_text())
        if name not in EXAMPLES and not any(file.endswith("/" + name.removeprefix("./")) for file in files)
    ]
    assert not missing, "\n".join(missing)


def test_full_paths_of_code_exist(root: Path) -> None:
    """`gpgmap_ros/io/points` is a file or a folder; the end of a path would not do."""
    missing = [
        f"{page.relative_to(root)}: {name}"
        for page in code_pages(root)
        for name in re.findall(r"(?<![\w./])(?:gpgmap_ros|gp_core|benchmark)/[\w./]+", page.read_text())
        if not (root / name.rstrip(".")).exists()
    ]
    assert not missing, "\n".join(missing)


def test_names_of_code_in_the_pages_exist(root: Path) -> None:
    """`gp_core.grid.GridGP` in any page; in that of the architecture also `slam.loop.Slam`, from a room on."""
    pytest.importorskip("rosbags", reason="rosbags is not installed: not every module can be imported")
    rooms = "|".join(sorted(path.parent.name for path in (root / "gpgmap_ros").glob("*/__init__.py")))
    missing = []
    for page in code_pages(root):
        text = page.read_text()
        names = re.findall(r"`((?:gpgmap_ros|gp_core)(?:\.\w+)+)", text)
        if page.name == "architecture.md":
            inner = re.findall(rf"`((?:{rooms})(?:\.\w+)+)", text)
            assert len(inner) > 20
            names += [f"gpgmap_ros.{name}" for name in inner]
        missing += [f"{page.relative_to(root)}: {name}" for name in names if not is_code(root, name)]
    assert not missing, "\n".join(missing)


def code_pages(root: Path) -> list[Path]:
    """Pages that name code as it is now: the changelog also names what is gone."""
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    return [page for page in pages if page.name != "CHANGELOG.md"]


def is_code(root: Path, name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    if parts[-1] == "py":  # a file of that name, `gpgmap_ros.launch.py`
        return True
    count = len(parts)
    while not (
        root.joinpath(*parts[:count]).is_dir() or root.joinpath(*parts[:count]).with_suffix(".py").exists()
    ):
        count -= 1
    if count == len(parts):
        return True
    try:
        found: object = importlib.import_module(".".join(parts[:count]))
    except ModuleNotFoundError as error:
        if "nodes" in parts and (error.name or "").split(".")[0] not in ("gpgmap_ros", "gp_core"):
            return True  # without ROS
        raise
    for part in parts[count:]:
        fields = getattr(found, "__dataclass_fields__", {}) | getattr(found, "__annotations__", {})
        if not hasattr(found, part) and part not in fields:
            return False
        found = getattr(found, part, None)
    return True


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("gp_core.grid.GridGP.posterior", True),
        ("gp_core.GaussianProcessRegressor", True),
        ("gpgmap_ros.slam.loop", True),
        ("gpgmap_ros.slam.Step.closures", True),
        ("gp_core.grid.GridGP.prosterior", False),
        ("gpgmap_ros.slam.lop", False),
        ("gpgmap_ros.offline.Replay", False),
    ],
)
def test_code_is_told_from_what_is_none(root: Path, name: str, exists: bool) -> None:
    assert is_code(root, name) == exists


def test_lines_fit_an_editor(root: Path) -> None:
    """At most 120 columns. Rows of tables can't be broken in Markdown."""
    long = [
        f"{page.relative_to(root)}:{number}: {len(line)} columns"
        for page in edited_pages(root)
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > 120 and not line.startswith("|")
    ]
    assert not long, "\n".join(long)


def test_lists_begin_after_an_empty_line(root: Path) -> None:
    """GitHub shows a list without it; the site would show one paragraph."""
    glued = [
        f"{page.relative_to(root)}: {line}"
        for page in edited_pages(root)
        for line in re.findall(
            r"^[^\s|#`<*-][^\n]*\n([-*] [^\n]*)", outside_code(page.read_text()), re.MULTILINE
        )
    ]
    assert not glued, "\n".join(glued)


def outside_code(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_the_site_has_every_page(root: Path) -> None:
    """Pages are in the navigation of the site, and the navigation names no other."""
    settings = yaml.load(
        (root / "mkdocs.yml").read_text(), yaml.BaseLoader
    )  # its tags are for Python objects
    made = {"index.md", "contributing.md", "changelog.md", "security_policy.md"}  # tools/site/hooks.py
    written = {path.relative_to(root / "docs").as_posix() for path in (root / "docs").rglob("*.md")}
    assert set(named_pages(settings["nav"])) == written | made


def named_pages(nav: object) -> Iterator[str]:
    """File names of the navigation of mkdocs.yml, which is nested lists and mappings."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list | dict):
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from named_pages(item)


def test_the_site_documents_every_public_package(root: Path) -> None:
    pages = "".join(page.read_text() for page in (root / "docs" / "api").glob("*.md"))
    for name in ("gp_core", "gp_core.kernels", "gp_core.grid", "gpgmap_ros.mapping", "gpgmap_ros.closure",
                 "gpgmap_ros.sensing", "gpgmap_ros.slam"):  # fmt: skip
        assert f"::: {name}\n" in pages


def test_the_site_builds_without_a_warning(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: run `make docs`")
    built = subprocess.run(
        [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=root, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    api = (tmp_path / "site" / "api" / "mapping.html").read_text()
    assert 'id="gpgmap_ros.mapping.gpgmap_from_points"' in api
    start = (tmp_path / "site" / "index.html").read_text()
    assert 'href="command_line.html"' in start
    assert 'src="images/demo.gif"' in start


def test_links_that_leave_the_site_become_text(root: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: run `make docs`")
    hooks = loaded(root / "tools" / "site" / "hooks.py")
    target = hooks.site_target
    assert target("docs/ros.md#frames", "README.md", "index.md") == "ros.md#frames"
    assert (
        target("../gallery/samples.png", "docs/models/ridge.md", "models/ridge.md")
        == "../gallery/samples.png"
    )
    assert target("../SECURITY.md", "docs/security.md", "security.md") == "security_policy.md"
    assert target("../config/security_policy.xml", "docs/security.md", "security.md") is None
    assert target("https://example.org", "README.md", "index.md") == "https://example.org"


def test_docstrings_become_markdown(root: Path) -> None:
    pytest.importorskip("griffe", reason="griffe is not installed: run `make docs`")
    as_markdown = loaded(root / "tools" / "site" / "docstrings.py").as_markdown
    text = "Computes it.\n\nx: the first\n    of two lines\ny, z: the others\n\nA note: no parameter.\n\n>>> 1 + 1\n2"
    assert as_markdown(text) == (
        "Computes it.\n\n- `x`: the first\n  of two lines\n- `y, z`: the others\n\nA note: no parameter.\n\n"
        "```pycon\n>>> 1 + 1\n2\n```"
    )
    assert (
        as_markdown("Rooms.\n\nsearch    where\ndatabase  which")
        == "Rooms.\n\n- `search`: where\n- `database`: which"
    )


def test_the_python_of_the_readme_runs(root: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    code = code.replace("(100, 100), 0.1", "(20, 20), 0.5")  # the same, on fewer cells
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert abs(float(namespace["height"][0]) - (-0.959)) < 0.1
    assert float(namespace["std"][0]) < 0.1
