"""What all commands have in common, and the smaller commands."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import drives
import numpy as np
import pytest
import yaml
from limits import PATIENCE
from optional import require_open3d
from PIL import Image
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores as RosStores
from rosbags.typesys import get_types_from_msg, get_typestore

from gpgmap_ros import __version__
from gpgmap_ros.apps import tuning
from gpgmap_ros.cli.main import COMMANDS
from gpgmap_ros.config import settings
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.trajectory import Trajectory, TrajectoryError, read_tum, write_tum
from gpgmap_ros.mapping.conversions import GridMapGeometry, layer_from_grid_map

HERE = Path(__file__).parent
NAMES = [command.name for command in COMMANDS]


# -- all commands ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_help_has_examples(gpgmap, name: str) -> None:
    text = gpgmap(name, "--help").stdout
    assert "examples:" in text
    assert f"gpgmap {name}" in text
    assert "--verbose" in text


def test_the_list_of_commands(gpgmap) -> None:
    text = gpgmap("--help").stdout
    assert all(f"    {name} " in text for name in NAMES)
    assert "exit codes: 0 done, 1 failed, 2 wrong call, 130 interrupted" in text


def test_a_failure_is_one_line_and_a_traceback_with_v(gpgmap) -> None:
    plain = gpgmap("replay", "nowhere", code=1)
    assert plain.stderr == "gpgmap replay: nowhere: no such file or folder\n"
    assert plain.stdout == ""
    for arguments in (("-v", "replay", "nowhere"), ("replay", "nowhere", "-v")):
        assert "Traceback" in gpgmap(*arguments, code=1).stderr


def test_a_reader_that_has_had_enough_is_no_failure(executables: Path) -> None:
    result = subprocess.run(
        f"{executables / 'gpgmap'} config | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert result.stdout == "/**:\n"
    assert result.stderr == ""


# -- config ----------------------------------------------------------------------------------------------


def test_config_in_every_form(gpgmap) -> None:
    rows = json.loads(gpgmap("config", "--json").stdout)
    assert [row["name"] for row in rows] == [item.name for item in settings()]
    assert all(row["meaning"] for row in rows)
    tree = yaml.safe_load(gpgmap("config", "--sensor", "stereo", "--set", "mapping.resolution=0.2").stdout)
    parameters = tree["/**"]["ros__parameters"]
    assert parameters["noise"]["sensor"] == "stereo"
    assert parameters["mapping"]["resolution"] == 0.2
    assert "| `mapping.resolution` | `0.1` | m | 0.001 to 100 |" in gpgmap("config", "--table").stdout


# -- completion ------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(gpgmap, tmp_path: Path) -> None:
    script = gpgmap("completion", "bash").stdout
    (tmp_path / "completion.bash").write_text(script)

    def completed(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        state = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}"
        text = f"source completion.bash; {state}; _gpgmap; echo ${{COMPREPLY[@]}}"
        result = subprocess.run(
            ["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return result.stdout.split()

    assert set(completed("gpgmap", "")) == set(NAMES)
    assert completed("gpgmap", "rep") == ["replay"]
    assert set(completed("gpgmap", "replay", "--o")) == {"--odom", "--out", "--overwrite"}
    assert completed("gpgmap", "replay", "bag", "--set", "mapping.reso") == ["mapping.resolution="]
    assert set(completed("gpgmap", "export", "run", "--to", "")) >= {"geotiff", "ply", "nav2"}
    assert completed("gpgmap", "map", "compl") == ["completion.bash"]


def test_every_shell_gets_every_command(gpgmap) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = gpgmap("completion", shell).stdout
        assert all(name in script for name in NAMES), shell


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(gpgmap, tmp_path: Path) -> None:
    (tmp_path / "completion.fish").write_text(gpgmap("completion", "fish").stdout)

    def completed(line: str) -> list[str]:
        result = subprocess.run(
            ["fish", "--no-config", "-c", f"source completion.fish; complete -C '{line}'"],
            cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
        assert not result.stderr
        return [text.split("\t")[0] for text in result.stdout.splitlines()]

    assert set(completed("gpgmap ")) == set(NAMES)
    assert completed("gpgmap rep") == ["replay"]
    assert set(completed("gpgmap replay --o")) == {"--odom", "--out", "--overwrite"}
    assert completed("gpgmap replay bag --set mapping.reso") == ["mapping.resolution="]
    assert set(completed("gpgmap export run --to ")) >= {"geotiff", "ply", "nav2"}
    assert completed("gpgmap map compl") == ["completion.fish"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(gpgmap, tmp_path: Path) -> None:
    script = gpgmap("completion", "zsh").stdout
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "_gpgmap").write_text(script)
    (tmp_path / "survey.las").touch()

    def completed(line: str) -> tuple[set[str], str]:
        """What is offered, and the line afterwards."""
        result = subprocess.run(
            ["zsh", "-f", str(HERE / "completions.zsh"), str(tmp_path / "functions"), line],
            cwd=tmp_path, capture_output=True, text=True, check=True, timeout=PATIENCE,
            env={**os.environ, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path)},
        )  # fmt: skip
        *offered, after = result.stdout.splitlines()
        return set(offered), after.removeprefix("LINE ")

    assert completed("gpgmap ")[0] == set(NAMES)
    assert completed("gpgmap rep") == ({"replay"}, "[gpgmap replay ]")
    assert completed("gpgmap replay --o")[0] == {"--odom", "--out", "--overwrite"}
    after = "[gpgmap replay bag --set mapping.resolution=]"
    assert completed("gpgmap replay bag --set mapping.reso") == ({"mapping.resolution="}, after)
    assert completed("gpgmap export run --to ")[0] >= {"geotiff", "ply", "nav2"}
    assert completed("gpgmap map surv")[0] == {"survey.las"}
    # and by `source`, as many do it
    text = "autoload -Uz compinit; compinit -u -D; source functions/_gpgmap; print $_comps[gpgmap]"
    sourced = subprocess.run(
        ["zsh", "-f", "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (sourced.stdout, sourced.stderr) == ("_gpgmap\n", "")


# -- export ----------------------------------------------------------------------------------------------


def test_export_to_everything(gpgmap, run_folder: Path, tmp_path: Path) -> None:
    formats = ("geotiff", "ply", "grid_map", "nav2", "xyz")
    files = json.loads(gpgmap("export", run_folder, "--to", *formats, "--out", "all/yard", "--json").stdout)[
        "files"
    ]
    assert all((tmp_path / name).exists() for name in files)
    gpgmap_, _ = RunFolder(run_folder).read_map()
    known = gpgmap_.known
    # nav2: the PGM as the map server reads it
    meta = yaml.safe_load((tmp_path / "all" / "yard.yaml").read_text())
    image = np.array(Image.open(tmp_path / "all" / meta["image"]))
    assert image.shape == gpgmap_.grid.shape
    assert meta["origin"] == pytest.approx([*gpgmap_.grid.origin, 0.0])
    occupancy = (255.0 - image[::-1]) / 255.0
    probability = gpgmap_["traversability"]
    with np.errstate(invalid="ignore"):
        assert (occupancy[probability > 0.8] < meta["free_thresh"]).all()
        # nothing doubtful is unknown: Nav2's costmaps read that as free unless they are told otherwise
        assert (occupancy[probability < 0.8] > meta["occupied_thresh"]).all()
        middle = occupancy[np.isnan(probability)]
    assert ((middle > meta["free_thresh"]) & (middle < meta["occupied_thresh"])).all()
    # xyz
    table = np.loadtxt(tmp_path / "all" / "yard.xyz")
    assert len(table) == known.sum()
    assert table[:, 2] == pytest.approx(gpgmap_["elevation"][known], abs=1e-4)
    check_grid_map(tmp_path / "all" / "yard_grid_map", gpgmap_)
    check_mesh(tmp_path / "all" / "yard.ply", gpgmap_)


def check_grid_map(bag: Path, gpgmap_) -> None:
    with Reader(bag) as reader:
        ((connection, _, raw),) = list(reader.messages())
        store = get_typestore(RosStores.ROS2_JAZZY)
        store.register(get_types_from_msg(connection.msgdef.data, connection.msgtype))
        message = store.deserialize_cdr(raw, connection.msgtype)
    assert connection.topic == "/grid_map"
    assert {item.name for item in bag.iterdir()} == {f"{bag.name}.db3", "metadata.yaml"}
    assert message.info.resolution == gpgmap_.grid.resolution
    rows, columns = gpgmap_.grid.shape[1], gpgmap_.grid.shape[0]
    geometry = GridMapGeometry(message.info.resolution, 0.0, 0.0, (0.0, 0.0), rows, columns)
    layer = layer_from_grid_map(message.data[message.layers.index("elevation")].data, geometry)
    assert np.array_equal(layer, gpgmap_["elevation"], equal_nan=True)


def check_mesh(path: Path, gpgmap_) -> None:
    o3d = require_open3d()
    mesh = o3d.io.read_triangle_mesh(str(path))
    vertices = np.asarray(mesh.vertices)
    assert len(vertices) == gpgmap_.known.sum()
    assert vertices[:, 2] == pytest.approx(gpgmap_["elevation"][gpgmap_.known], abs=1e-5)
    mesh.compute_triangle_normals()
    assert (np.asarray(mesh.triangle_normals)[:, 2] > 0.0).all(), "the mesh is seen from above"
    assert mesh.has_vertex_colors()


def test_a_submap_can_be_exported_and_what_is_not_there_is_named(gpgmap, run_folder: Path) -> None:
    assert gpgmap("export", f"{run_folder}:1", "--to", "xyz", "--out", "one").stdout == "one.xyz\n"
    assert "no submap 99" in gpgmap("export", f"{run_folder}:99", "--to", "xyz", code=1).stderr
    assert "no such file or run" in gpgmap("export", "nowhere", "--to", "ply", code=2).stderr
    assert "invalid choice" in gpgmap("export", run_folder, "--to", "dxf", code=2).stderr


# -- register --------------------------------------------------------------------------------------------


def test_register_finds_a_map_in_itself(gpgmap, hills: np.ndarray, tmp_path: Path) -> None:
    """The same ground, seen in two frames that are 30 degrees and some metres apart."""
    rng = np.random.default_rng(0)
    relief = hills - [500_000.0, 4_000_000.0, 250.0]
    relief[:, 2] += 0.4 * np.sin(relief[:, 0] * 1.3 + 0.6 * relief[:, 1]) * np.sin(relief[:, 1] * 0.9)
    a = np.deg2rad(30.0)
    R = np.array([[np.cos(a), -np.sin(a), 0.0], [np.sin(a), np.cos(a), 0.0], [0.0, 0.0, 1.0]])
    t = np.array([3.0, -2.0, 0.7])
    pick = rng.random(len(relief)) < 0.5
    np.savez(tmp_path / "target.npz", xyz=relief[pick])
    np.savez(tmp_path / "source.npz", xyz=(relief[~pick] - t) @ R)  # p_target = R p_source + t
    result = json.loads(
        gpgmap(
            "register", "source.npz", "target.npz", "--resolution", 0.4, "--json", "--out", "fig.png"
        ).stdout
    )
    assert result["accepted"], result["reason"]
    T = np.array(result["T_target_source"])
    assert T[:3, 3] == pytest.approx(t, abs=0.1)
    assert result["yaw_deg"] == pytest.approx(30.0, abs=0.5)
    assert (tmp_path / "fig.png").read_bytes().startswith(b"\x89PNG")
    said = gpgmap("register", "source.npz", "target.npz", "--resolution", 0.4, "--no-figure").stdout
    assert "accepted" in said
    assert "nats above the best of unrelated poses" in said


def test_register_says_what_it_needs(gpgmap, hills: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", xyz=hills)
    assert (
        "give the cell size with --resolution, as in --resolution 0.2"
        in gpgmap("register", "a.npz", "a.npz", code=2).stderr
    )


@pytest.mark.parametrize(
    "command", [("export", "{}", "--to", "xyz"), ("register", "{}", "{}"), ("tune", "{}")]
)
def test_files_that_are_none_of_what_is_asked_for(gpgmap, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Each with one line that names it; nothing is written."""
    (tmp_path / "empty.npz").touch()
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.npz")
    before = sorted(tmp_path.iterdir())
    for name in ("nowhere.npz", "empty.npz", "text.npz", "folder", "pipe.npz"):
        result = gpgmap(*(part.format(name) for part in command), code=None)
        assert result.returncode in (1, 2)
        (said,) = [line for line in result.stderr.splitlines() if line.startswith("gpgmap")]
        assert said.startswith(f"gpgmap {command[0]}: {name}: "), said
        assert "Traceback" not in result.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_an_out_that_is_a_folder_is_refused_for_a_file(gpgmap, tmp_path: Path) -> None:
    for command in (("register", "a.npz", "b.npz"), ("tune", "a.npz")):
        assert "is a folder: name a file" in gpgmap(*command, "--out", tmp_path, code=2).stderr
    assert "expected metres" in gpgmap("register", "a.npz", "b.npz", "--resolution", -1, code=2).stderr


# -- evaluate --------------------------------------------------------------------------------------------


def test_evaluate_against_the_truth(gpgmap, run_folder: Path, tmp_path: Path) -> None:
    """Truth in another frame, 1 cm of noise: the alignment takes the frame away, the noise is what is left."""
    own = read_tum(run_folder / "odometry.txt")
    T = np.eye(4)
    T[:2, :2], T[:3, 3] = [[0.0, -1.0], [1.0, 0.0]], [100.0, 50.0, 3.0]
    poses = T @ own.poses
    poses[:, :3, 3] += 0.01 * np.random.default_rng(0).normal(size=(len(own), 3))
    write_tum(tmp_path / "truth.txt", Trajectory(own.stamps, poses))
    result = json.loads(
        gpgmap("evaluate", run_folder, "--truth", "truth.txt", "--json", "--distance", 5).stdout
    )
    assert 0.005 < result["odometry"]["ate_m"]["rmse"] < 0.025
    assert result["odometry"]["poses"] == drives.CLOUDS
    assert result["odometry"]["rpe"]["translation_percent"] < 1.0
    assert "precision" in gpgmap("evaluate", run_folder, "--truth", "truth.txt").stdout


def test_evaluate_refuses_a_truth_of_another_time(gpgmap, run_folder: Path, tmp_path: Path) -> None:
    own = read_tum(run_folder / "odometry.txt")
    write_tum(tmp_path / "truth.txt", Trajectory(own.stamps - 10**15, own.poses))
    assert (
        "are both in the same clock?" in gpgmap("evaluate", run_folder, "--truth", "truth.txt", code=1).stderr
    )
    (tmp_path / "bad.txt").write_text("1 2 3\n")
    assert "bad.txt: line 1: expected" in gpgmap("evaluate", run_folder, "--truth", "bad.txt", code=1).stderr
    assert "not a gpgmap run" in gpgmap("evaluate", ".", "--truth", "bad.txt", code=1).stderr


def test_tum_files_keep_nanoseconds(tmp_path: Path) -> None:
    stamps = np.array([1_700_000_000_123_456_789, 1_700_000_000_123_456_790], dtype=np.int64)
    write_tum(tmp_path / "a.txt", Trajectory(stamps, np.tile(np.eye(4), (2, 1, 1))))
    assert read_tum(tmp_path / "a.txt").stamps.tolist() == stamps.tolist()
    (tmp_path / "b.txt").write_text("# nothing\n")
    with pytest.raises(TrajectoryError, match="the file has no poses"):
        read_tum(tmp_path / "b.txt")


# -- tune ------------------------------------------------------------------------------------------------


def test_trajectories_far_from_their_origin_keep_millimetres(tmp_path: Path) -> None:
    """Odometry in UTM."""
    pose = np.eye(4)
    pose[:3, 3] = [512_345.6789, 4_123_456.7891, -0.1234]
    write_tum(tmp_path / "utm.txt", Trajectory(np.array([1]), pose[None]))
    np.testing.assert_allclose(read_tum(tmp_path / "utm.txt").poses[0], pose, rtol=0.0, atol=1e-4)


@pytest.mark.slow
def test_tune_learns_what_the_points_were_made_with(
    gpgmap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draws from a GP of known length scale, relief and noise."""
    monkeypatch.setattr(
        tuning, "STARTS", {"rbf": (1.0, 4.0), "matern32": (1.0,)}
    )  # of seven: each of a smooth kernel is a search
    rng = np.random.default_rng(1)
    length, relief, noise = 2.0, 0.8, 0.05
    frequency = rng.normal(size=(600, 2)) / length  # spectral density of the RBF
    phase = rng.uniform(0.0, 2.0 * np.pi, 600)
    xy = rng.uniform(0.0, 18.0, (3_000, 2))
    z = relief * np.sqrt(2.0 / 600) * np.cos(xy @ frequency.T + phase).sum(axis=1) + noise * rng.normal(
        size=len(xy)
    )
    np.savez(tmp_path / "drawn.npz", xyz=np.column_stack([xy, z]))
    result = json.loads(
        gpgmap(
            "tune", "drawn.npz", "--out", "tuned.yaml", "--json", "--set", "mapping.resolution=0.6",
            "--set", "mapping.kernel=rbf", "--set", "mapping.length_scale=1.0", "--set", "mapping.relief_std=0.5",
            "--set", "noise.height_std=0.02",
        ).stdout
    )  # fmt: skip
    learned = {name: item["after"] for name, item in result["settings"].items()}
    assert [item["kernel"] for item in result["tried"]] == ["rbf", "rbf", "matern32"]
    assert "mapping.kernel" not in learned, "the points were drawn with the kernel that it began with"
    assert learned["mapping.length_scale"] == pytest.approx(length, rel=0.15)
    assert learned["noise.height_std"] == pytest.approx(noise, rel=0.15)
    # the map had learned its noise before, too: what is better is the length scale
    assert result["held_out"]["after"]["log_density"] > result["held_out"]["before"]["log_density"] + 0.02
    assert result["held_out"]["after"]["within"] == pytest.approx(0.954, abs=0.02)
    tree = yaml.safe_load((tmp_path / "tuned.yaml").read_text())["/**"]["ros__parameters"]
    assert tree["mapping"]["length_scale"] == learned["mapping.length_scale"]


def test_tune_needs_points(gpgmap, tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", xyz=np.random.default_rng(0).uniform(0, 5, (300, 3)))
    result = gpgmap("tune", "few.npz", code=1)
    assert "500 are needed" in result.stderr
    assert not (tmp_path / "tuned.yaml").exists()


# -- doctor ----------------------------------------------------------------------------------------------


def test_doctor_on_the_installation(gpgmap) -> None:
    findings = json.loads(gpgmap("doctor", "--json").stdout)
    subjects = {item["subject"] for item in findings}
    assert {"Python", "numpy", "rosbags", "compiled loops"} <= subjects
    assert all(item["remedy"] for item in findings if item["status"] != "good")


def test_doctor_finds_where_compiled_loops_are_kept(tmp_path: Path) -> None:
    """In a process of its own: in this one, other tests have imported the loops."""
    said = subprocess.run(
        [sys.executable, "-m", "gpgmap_ros.cli", "doctor"], capture_output=True, text=True, check=False,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
    ).stdout  # fmt: skip
    assert f"kept in {tmp_path}" in said


def test_doctor_on_a_good_recording(gpgmap, drive_bags: drives.Bags) -> None:
    said = gpgmap("doctor", drive_bags.sqlite).stdout
    assert "4.0 Hz" in said
    assert "24 of 24 clouds have one in 'odom'" in said
    assert said.splitlines()[-1].startswith("nothing is wrong")


def test_doctor_says_what_a_bug_report_needs(gpgmap, drive_bags: drives.Bags) -> None:
    """Also where the recording is the problem: versions, machine, changed settings, the recording, a last line."""
    said = gpgmap("doctor", drive_bags.sqlite, "--set", "mapping.resolution=0.2").stdout
    for text in (
        f"gpgmap doctor {drive_bags.sqlite}, 20",
        f"gpgmap          {__version__}, in ",
        "GB of memory",
        f"Python          {sys.version.split()[0]} on ",
        f"numpy           {np.__version__}",
        "mapping.resolution = 0.2 m (default 0.1)",
        "/lidar/points  sensor_msgs/msg/PointCloud2  24 messages",
    ):
        assert text in said
    said = gpgmap("doctor", "nowhere", code=1).stdout
    assert "WRONG  recording       nowhere: no such file or folder" in said
    assert "numpy" in said
    assert said.splitlines()[-1].startswith("1 wrong")


def test_doctor_names_what_is_wrong(gpgmap, drive_bags: drives.Bags, tmp_path: Path) -> None:
    drives.write_ros2(tmp_path / "bare", drives.clouds_alone(drive_bags.frames))
    assert "poses by LiDAR odometry: there is no moving /tf above 'lidar'" in gpgmap("doctor", "bare").stdout
    said = gpgmap(
        "doctor", drive_bags.sqlite, "--set", "filter.min_range=100", "--set", "filter.max_range=200", code=1
    )
    assert "all points are outside 100 to 200 m" in said.stdout
    cut = drives.cut(drive_bags.mcap, tmp_path / "cut", 0.6)
    assert "it ends within a record" in gpgmap("doctor", cut, code=1).stdout


# -- rerun -----------------------------------------------------------------------------------------------


def test_the_live_view(gpgmap, drive_bags: drives.Bags, small, tmp_path: Path) -> None:
    """What a viewer would show, written to a file and read back. A window on a screen is not tried here."""
    arguments = ["replay", drive_bags.sqlite, "--rerun-save", "run.rrd", "--out", "out", *small]
    if importlib.util.find_spec("rerun") is None:
        result = gpgmap(*arguments, code=1)
        assert result.stderr == "gpgmap replay: --rerun needs the viewer: pip install rerun-sdk\n"
        assert not (tmp_path / "out").exists()
        pytest.skip("rerun-sdk is not installed: only its absence was tried")
    gpgmap(*arguments)
    command = [sys.executable, "-m", "rerun", "rrd", "print", "-v", "run.rrd"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    chunks = re.findall(r"with (\d+) rows .* - /(\S+) - data columns: \[(.*)\]", printed)
    rows: dict[str, int] = {}
    for count, path, _ in chunks:
        rows[path] = rows.get(path, 0) + int(count)
    assert rows["map/cloud"] == rows["map/trajectory/0"] == drives.CLOUDS
    summary = json.loads((tmp_path / "out" / "run.json").read_text())
    assert sum(path.startswith("map/submaps/") for path in rows) == summary["submaps"], "the last one too"
    assert rows.get("closures", 0) == summary["closures"]["compared"]
    assert ("map/closures" in rows) == (summary["closures"]["accepted"] > 0)
    columns = {path: text for _, path, text in chunks}
    assert "Points3D:positions" in columns["map/cloud"]
    assert "Mesh3D:triangle_indices" in columns["map/surface"]
    assert "Image:buffer" in columns["uncertainty"]
