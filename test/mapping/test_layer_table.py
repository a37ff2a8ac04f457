"""One row of the table of layers is enough for a layer to come out everywhere."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Picture

from gpgmap_ros.apps.results import write_map
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping import GPGMap, gpgmap_from_points
from gpgmap_ros.mapping.layers import (
    BASE,
    LAYERS,
    ColourScale,
    LayerRow,
    exported_layers,
    global_map_layers,
    grid_map_layers,
    image_topics,
)
from gpgmap_ros.report.content import layers_of
from gpgmap_ros.viz.figures import save_figures
from gpgmap_ros.viz.rendering import STYLES

NAME = "relative_height"


@pytest.fixture
def new_layer(monkeypatch: pytest.MonkeyPatch) -> LayerRow:
    """Height above the lowest known cell, as somebody would add it."""
    # A module that makes a list of the table when it is imported must not do so with this row in it.
    with contextlib.suppress(ImportError):
        import gpgmap_ros.nodes.outputs  # noqa: F401
    row = LayerRow(
        NAME,
        "m",
        "height above the lowest known cell",
        formula=lambda layers, _: layers["elevation"] - np.nanmin(layers["elevation"]),
        scale=ColourScale("Relative height", "cm", "viridis", factor=100.0, zero=True),
        topic="relative_height_image",
        grid_map=True,
        global_map=True,
        exported=True,
        reported=True,
        figure=True,
    )
    monkeypatch.setitem(LAYERS, NAME, row)
    return row


@pytest.fixture
def gpgmap() -> GPGMap:
    rng = np.random.default_rng(3)
    xy = rng.uniform(0.0, 4.0, (800, 2))
    return gpgmap_from_points(np.column_stack([xy, 3.0 + 0.2 * xy[:, 0]]), 0.2)


def test_a_row_makes_a_layer_of_every_map(new_layer: LayerRow, gpgmap: GPGMap) -> None:
    assert NAME in gpgmap.layers
    assert np.nanmin(gpgmap[NAME]) == 0.0
    assert 0.5 < np.nanmax(gpgmap[NAME]) < 1.1
    np.testing.assert_array_equal(np.isnan(gpgmap[NAME]), ~gpgmap.known)


def test_a_row_comes_out_in_files_pictures_and_the_report(
    new_layer: LayerRow, gpgmap: GPGMap, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path)
    write_map(folder, gpgmap, Crs(name="local"))
    with Picture.open(folder.layers / f"{NAME}.tif") as file:
        np.testing.assert_array_equal(np.asarray(file)[::-1], gpgmap[NAME])
    with Picture.open(folder.layers / f"{NAME}.png") as file:
        assert file.size == gpgmap.grid.shape[::-1]
    shown = {layer["name"]: layer for layer in layers_of(gpgmap)["layers"]}
    assert shown[NAME]["title"] == "Relative height"
    assert shown[NAME]["unit"] == "cm"
    assert shown[NAME]["high"] == pytest.approx(100.0 * np.nanmax(gpgmap[NAME]), rel=1e-4)
    x, y = gpgmap.grid.origin
    written = save_figures({new_layer.topic: gpgmap[NAME]}, (x, y), gpgmap.grid.resolution, tmp_path)
    assert tmp_path / f"{new_layer.topic}.png" in written


def test_a_row_comes_out_in_bags(new_layer: LayerRow, gpgmap: GPGMap, tmp_path: Path) -> None:
    pytest.importorskip("rosbags")
    from rosbags.highlevel import AnyReader

    from gpgmap_ros.io.grid_map_bag import write_grid_map_bag

    write_grid_map_bag(tmp_path / "bag", gpgmap, exported_layers())
    with AnyReader([tmp_path / "bag"]) as reader:
        ((connection, _, raw),) = reader.messages()
        assert NAME in reader.deserialize(raw, connection.msgtype).layers


def test_a_row_comes_out_in_messages(new_layer: LayerRow, gpgmap: GPGMap) -> None:
    pytest.importorskip("rclpy")
    from gpgmap_ros.nodes.messages import layer_of
    from gpgmap_ros.nodes.outputs import map_outputs

    outputs = map_outputs()
    np.testing.assert_array_equal(layer_of(outputs[new_layer.topic].build(gpgmap)), gpgmap[NAME])
    assert NAME in outputs["grid_map"].build(gpgmap).layers
    assert NAME in global_map_layers(gpgmap.layers)


def test_the_table_is_complete() -> None:
    """What is shown has colours, what is drawn has a place to be drawn from, and nothing is listed twice."""
    for name, row in LAYERS.items():
        assert row.name == name
        assert row.meaning
        assert not row.reported or name in STYLES
        assert not row.figure or (row.topic and (row.scale is not None or row.drawn_as in STYLES))
        assert row.formula is not None or row.optional or name in BASE
    topics = [row.topic for row in LAYERS.values() if row.topic]
    assert len(topics) == len(set(topics)) == len(image_topics())
    assert set(grid_map_layers()) <= set(LAYERS)
