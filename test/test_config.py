"""The configuration: strict, checked, and the one source of what the YAML says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from gpgmap_ros.config import (
    ClosureConfig,
    Config,
    ConfigError,
    FilterConfig,
    MappingConfig,
    Setting,
    settings,
    with_settings,
)
from gpgmap_ros.config.schema import Value
from gpgmap_ros.config.yaml import config_yaml, load_config, parse_yaml, save_config


def test_every_setting_says_what_it_means_and_every_number_has_a_range() -> None:
    for item in settings():
        assert item.meaning, item.name
        if isinstance(item.default, float | int) and not isinstance(item.default, bool):
            assert item.low is not None, item.name
            assert item.high is not None, item.name
            assert item.low <= item.default <= item.high, item.name


def test_the_shipped_file_is_what_the_configuration_says(root: Path) -> None:
    shipped = (root / "config" / "gpgmap.yaml").read_text()
    assert shipped == config_yaml(), (
        "config/gpgmap.yaml is out of date: .venv/bin/gpgmap config > config/gpgmap.yaml"
    )
    assert load_config(root / "config" / "gpgmap.yaml") == Config()


def test_the_demo_file_loads(root: Path) -> None:
    assert load_config(root / "config" / "demo.yaml").mapping.length_scale == 0.4


@pytest.mark.parametrize("sensor", ["spinning_lidar", "solid_state_lidar", "stereo"])
def test_the_files_for_sensors_load_and_choose_their_preset(root: Path, sensor: str) -> None:
    assert load_config(root / "config" / f"{sensor}.yaml").noise.sensor == sensor


def test_saving_and_loading_gives_the_same(tmp_path: Path) -> None:
    config = with_settings(
        Config(), {"mapping.resolution": 1e-3, "noise.height_std": 1e-5, "map_frame": "world"}
    )
    save_config(config, tmp_path / "c.yaml")
    assert load_config(tmp_path / "c.yaml") == config
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]
    # a ROS node reads floats as floats only when they look like floats
    values = yaml.safe_load((tmp_path / "c.yaml").read_text())["/**"]["ros__parameters"]
    assert isinstance(values["noise"]["height_std"], float)


def test_plain_nested_settings_load_too(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("map_frame: world\nmapping:\n  resolution: 1\n")
    config = load_config(path)
    assert config.map_frame == "world"
    assert config.mapping.resolution == 1.0
    assert isinstance(config.mapping.resolution, float)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mapping.resoluton", 0.1, "did you mean 'mapping.resolution'"),
        ("resolution", 0.1, "did you mean 'mapping.resolution' or 'submap.resolution'"),
        ("zzz", 0.1, "gpgmap config"),
        ("mapping.resolution", -1.0, r"mapping.resolution: -1.0 is outside \[0.001, 100.0\] m"),
        ("mapping.resolution", float("nan"), "mapping.resolution: nan is not a finite number"),
        ("mapping.resolution", "fine", "mapping.resolution: expected float, got 'fine'"),
        ("mapping.resolution", True, "expected float, got True"),
        ("queue_size", 2.5, "queue_size: expected int, got 2.5"),
        ("points_topics", "points", "points_topics: expected a list of names, got 'points'"),
        ("points_topics", ["points", ""], "points_topics: expected a list of names"),
        ("pose_source", "gps", "pose_source: 'gps' is not one of 'tf', 'odometry'"),
    ],
)
def test_a_wrong_setting_is_named_with_what_would_be_right(name: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_settings(Config(), {name: value})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"filter.min_range \(9.0\) must be below filter.max_range \(5.0\)"):
        FilterConfig(min_range=9.0, max_range=5.0)
    with pytest.raises(ConfigError, match=r"closure.min_path \(-0.5\) must not be negative; -1 takes"):
        ClosureConfig(min_path=-0.5)
    with pytest.raises(ConfigError, match=r"size_x .* is smaller than one cell"):
        MappingConfig(size_x=0.5, resolution=1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "not valid YAML"),
        ("- 1\n- 2", "expected settings"),
        ("/**:\n  ros__parameters: text", "below ros__parameters, got str"),
        ("/**:\n  ros__parameters: [1, 2]", "below ros__parameters, got list"),
        ("mapping: {resolution: 0}", "mapping.resolution: 0.0 is outside"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"bad.yaml.*{message}"):
        load_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.yaml: cannot be read"):
        load_config(tmp_path / "none.yaml")


def test_a_slash_before_a_frame_is_left_out() -> None:
    names = {"map_frame": "/world", "base_frame": "//base", "closure.frame": "/map"}
    config = with_settings(Config(), names)
    assert (config.map_frame, config.base_frame, config.closure.frame) == ("world", "base", "map")
    with pytest.raises(ConfigError, match="two frames"):
        with_settings(Config(), {"map_frame": "/map", "closure.publish_tf": True})
    with pytest.raises(ConfigError, match="map_frame is empty"):
        Config(map_frame="/")


def test_settings_of_localisation_that_contradict_each_other_are_refused() -> None:
    for changes, text in (
        ({"localization.update": True}, "needs localization.map"),
        ({"localization.map": "run", "closure.frame": "odom"}, "localization.map needs two frames"),
        ({"localization.map": "run", "closure.publish_tf": True}, "both publish the map's frame"),
        (
            {"localization.map": "run", "localization.update": True, "map_folder": "maps"},
            "leave map_folder empty",
        ),
    ):
        with pytest.raises(ConfigError, match=text):
            with_settings(Config(), changes)


def any_value(item: Setting) -> st.SearchStrategy[Value]:
    if item.choices:
        return st.sampled_from(item.choices)
    if isinstance(item.default, bool):
        return st.booleans()
    if isinstance(item.default, float):
        return st.floats(item.low, item.high)
    if isinstance(item.default, int):
        return st.integers(int(item.low or 0), int(item.high or 0))
    if isinstance(item.default, tuple):
        return st.lists(st.text(min_size=1), min_size=1, max_size=4)
    words = (
        "y",
        "N",
        "on",
        "null",
        "~",
        "1e5",
        "0x1F",
        "1_000",
        "nan",
        ".inf",
        "2026-11-17",
        "12:30:45",
        "<<",
        "=",
    )
    return st.text() | st.sampled_from(words)


@st.composite
def some_changes(draw: st.DrawFn) -> dict[str, Value]:
    chosen = draw(st.lists(st.sampled_from(list(settings())), max_size=8, unique_by=lambda item: item.name))
    return {item.name: draw(any_value(item)) for item in chosen}


@examples(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some_changes())
def test_any_configuration_is_read_back_as_it_was_saved(tmp_path: Path, changes: dict[str, Value]) -> None:
    try:
        config = with_settings(Config(), changes)
    except ConfigError:  # two settings that exclude each other
        return
    save_config(config, tmp_path / "c.yaml")
    assert load_config(tmp_path / "c.yaml") == config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("map_folder", "/media/robot/a disk with a long name/" + "and a long folder/" * 10),
        ("map_folder", "maps # of today"),
        ("map_folder", "two\nlines: and a colon"),
        ("points_topics", ("front, left/points", "rear[0]", "# no comment")),
        ("map_name", "yes"),
        ("map_name", "1e5"),
        ("map_name", "ünïcode \u2028 \x07 \ud800"),
    ],
)
def test_hard_texts_are_read_back(tmp_path: Path, name: str, value: Value) -> None:
    config = with_settings(Config(), {name: value})
    save_config(config, tmp_path / "c.yaml")
    assert load_config(tmp_path / "c.yaml") == config
    lines = (tmp_path / "c.yaml").read_text().splitlines()
    assert len(lines) == len(config_yaml().splitlines())


def test_aliases_are_refused_before_they_multiply(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefghijk", "bcdefghijkl", strict=True)
    ]
    path = tmp_path / "laughs.yaml"
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=r"laughs.yaml: .*line 2: aliases \(\*a\) are not supported"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("a: &a {b: *a}", "aliases"),
        ("x: " + "9" * 5_000, "not valid YAML"),
        ("x: 2026-99-99", "not valid YAML"),
        ("x" * 2_000_000, "not a settings file"),
        ("x: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("x: \x00", "not valid YAML"),
    ],
)
def test_hostile_yaml_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text)


def test_the_former_home_of_yaml_files_still_works_and_says_so() -> None:
    import gpgmap_ros.config_file as former

    with pytest.warns(DeprecationWarning, match=r"use gpgmap_ros\.config\.yaml\.load_config"):
        assert former.load_config is load_config
