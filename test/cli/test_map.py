"""gpgmap map: every format, coordinates, tiles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fast_mapping import FAST, options
from optional import require_open3d
from scipy.ndimage import binary_erosion
from small_survey import SmallSurvey

from gpgmap_ros.apps.coordinate_systems import check_units
from gpgmap_ros.apps.survey_plan import SurveyError, plan_sample
from gpgmap_ros.apps.survey_tasks import read_ahead
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points import PIECE, PointFileError, open_points
from gpgmap_ros.io.points.las import epsg_of
from gpgmap_ros.mapping.survey import Trend, trend_of
from gpgmap_ros.report.encoding import decoded

rasterio = pytest.importorskip("rasterio", reason="rasterio is not installed: run `make setup-dev`")
UTM = 32611
SETTINGS = options({**FAST, "mapping.resolution": 0.5, "noise.height_std": 0.03})


def truth(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 3.0 * np.sin((x - 500_000.0) / 6.0) * np.cos((y - 4_000_000.0) / 7.0) + 250.0


def write(path: Path, xyz: np.ndarray, kind: str) -> Path:
    """The points in a file of the given kind, independent of our readers."""
    path = path / f"points.{kind.split('_')[0]}"
    offset = xyz.mean(axis=0).round()
    if kind.startswith("npz"):
        save = np.savez_compressed if kind == "npz_compressed" else np.savez
        save(path, xyz=(xyz - offset).astype(np.float32), offset=offset, epsg=UTM)
    elif kind == "npy":
        np.save(path, xyz)
    elif kind in ("las", "laz"):
        import laspy

        header = laspy.LasHeader(point_format=6, version="1.4")
        header.offsets, header.scales = offset, [0.001] * 3
        las = laspy.LasData(header)
        las.x, las.y, las.z = xyz.T
        las.classification = np.full(len(xyz), 2, dtype=np.uint8)
        las.write(path)
    elif kind in ("xyz", "csv"):
        separator, head = (" ", "") if kind == "xyz" else (",", "x,y,z")
        np.savetxt(path, xyz, fmt="%.4f", delimiter=separator, header=head, comments="")
    elif kind == "ply_ascii":
        body = "\n".join(" ".join(f"{value:.4f}" for value in row) for row in xyz)
        properties = "".join(f"property double {name}\n" for name in "xyz")
        path.write_text(f"ply\nformat ascii 1.0\nelement vertex {len(xyz)}\n{properties}end_header\n{body}\n")
    elif kind == "ply":
        rows = np.zeros(len(xyz), dtype=[("intensity", "<f4"), ("x", "<f8"), ("y", "<f8"), ("z", "<f8")])
        rows["x"], rows["y"], rows["z"] = xyz.T
        names = {"<f4": "float", "<f8": "double"}
        properties = "".join(f"property {names[rows.dtype[name].str]} {name}\n" for name in rows.dtype.names)
        head = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(xyz)}\n{properties}end_header\n"
        path.write_bytes(head.encode() + rows.tobytes())
    else:
        assert kind == "pcd"
        rows = np.zeros(len(xyz), dtype=[("x", "<f8"), ("y", "<f8"), ("z", "<f8"), ("ring", "<u2")])
        rows["x"], rows["y"], rows["z"] = xyz.T
        head = (
            "# .PCD v0.7\nVERSION 0.7\nFIELDS x y z ring\nSIZE 8 8 8 2\nTYPE F F F U\nCOUNT 1 1 1 1\n"
            f"WIDTH {len(xyz)}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {len(xyz)}\nDATA binary\n"
        )
        path.write_bytes(head.encode() + rows.tobytes())
    return path


KINDS = ["npz", "npz_compressed", "npy", "las", "laz", "xyz", "csv", "ply", "ply_ascii", "pcd"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_reader_gives_the_points(kind: str, hills: np.ndarray, tmp_path: Path) -> None:
    points = hills[:5000]
    source = open_points(write(tmp_path, points, kind))
    read = np.concatenate(list(source.pieces()))
    assert np.abs(read - points).max() < 2e-3  # what the format rounds to
    assert source.count in (None, len(points))
    assert len(source.sample(1000)) >= 900


def test_pcd_as_pcl_compresses_it(hills: np.ndarray, tmp_path: Path) -> None:
    o3d = require_open3d()
    cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(hills[:3000] - hills.mean(axis=0)))
    o3d.io.write_point_cloud(str(tmp_path / "a.pcd"), cloud, compressed=True)
    read = np.concatenate(list(open_points(tmp_path / "a.pcd").pieces()))
    assert np.abs(read - (hills[:3000] - hills.mean(axis=0))).max() < 1e-4


def test_a_file_larger_than_a_piece_comes_whole(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(2 * PIECE + 17, 3)).astype(np.float32)
    np.savez(tmp_path / "a.npz", xyz=points)
    source = open_points(tmp_path / "a.npz")
    pieces = list(source.pieces())
    assert [len(piece) for piece in pieces] == [PIECE, PIECE, 17]
    assert np.array_equal(np.concatenate(pieces), points.astype(np.float64))
    sample = source.sample(100_000)
    assert 50_000 < len(sample) < 400_000
    # from all over the file, not from its beginning
    assert {tuple(row) for row in sample[-5:].astype(np.float32)} <= {tuple(row) for row in points[PIECE:]}


@pytest.mark.parametrize("kind", ["npz", "laz"])
def test_coordinates_and_their_system_are_kept(gpgmap, hills: np.ndarray, tmp_path: Path, kind: str) -> None:
    file = write(tmp_path, hills, kind)
    crs = [] if kind == "npz" else ["--crs", f"EPSG:{UTM}"]
    summary = json.loads(gpgmap("map", file, "--out", "out", "--json", *SETTINGS, *crs).stdout)
    assert summary["points"]["used"] == len(hills)
    with rasterio.open(tmp_path / "out" / "layers" / "elevation.tif") as tif:
        assert tif.crs.to_epsg() == UTM
        assert tif.res == (0.5, 0.5)
        assert tif.bounds.left == pytest.approx(500_000.0, abs=0.51)
        assert tif.bounds.bottom == pytest.approx(4_000_000.0, abs=0.51)
        assert np.isnan(tif.nodata)
        assert tif.descriptions == ("elevation",)
        assert tif.units == ("m",)
        heights = tif.read(1)
        rows, columns = np.nonzero(np.isfinite(heights))
        x, y = tif.xy(rows, columns)
    error = heights[rows, columns] - truth(np.asarray(x), np.asarray(y))
    inside = (rows > 4) & (columns > 4) & (rows < heights.shape[0] - 4) & (columns < heights.shape[1] - 4)
    assert inside.sum() > 4000
    assert np.sqrt(np.mean(error[inside] ** 2)) < 0.02
    arrays = np.load(tmp_path / "out" / "map.npz")
    assert np.array_equal(arrays["elevation"][::-1], heights, equal_nan=True)
    assert (tmp_path / "out" / "report.html").exists()
    assert not (tmp_path / "out" / ".tiles").exists()


def test_several_files_are_one_map(gpgmap, hills: np.ndarray, tmp_path: Path) -> None:
    for name, part in (("a", hills[::2]), ("b", hills[1::2])):
        np.savez(tmp_path / f"{name}.npz", xyz=part, epsg=UTM)
    np.savez(tmp_path / "all.npz", xyz=hills, epsg=UTM)
    settings = [*SETTINGS, "--set", "mapping.length_scale=2.5", "--set", "mapping.relief_std=1.5"]
    gpgmap("map", "a.npz", "b.npz", "--out", "two", *settings)
    gpgmap("map", "all.npz", "--out", "one", *settings)
    one, two = (np.load(tmp_path / name / "map.npz")["elevation"] for name in ("one", "two"))
    assert np.nanmax(np.abs(one - two)) < 0.01  # the trend is read off other samples


def test_learned_noise_is_a_layer_of_the_map(gpgmap, hills: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "hills.npz", xyz=hills)
    rough = ("--set", "mapping.kernel=matern32", "--set", "mapping.learn_noise=true")
    gpgmap("map", "hills.npz", "--out", "made", "--set", "mapping.resolution=0.5", *rough)
    (layer,) = (tmp_path / "made").rglob("noise_variance.tif")
    assert layer.stat().st_size > 1000
    (stored,) = (tmp_path / "made").glob("*.npz")
    with np.load(stored) as file:
        noise = file["noise_variance"]
    assert 0.0 < np.nanmedian(noise) < 0.1**2


def test_the_relief_fades_at_the_edges_of_the_data(gpgmap, hills: np.ndarray, tmp_path: Path) -> None:
    distance = np.hypot(*(hills[:, :2] - hills[:, :2].mean(axis=0)).T)
    np.savez(tmp_path / "disc.npz", xyz=hills[distance < 15.0])
    gpgmap("map", "disc.npz", "--out", "out", *SETTINGS)  # the smooth kernel bends back to its mean there
    page = (tmp_path / "out" / "report.html").read_text()
    data = json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    )
    shown = data["map"]
    certain = decoded(shown["certain"], (shown["rows"], shown["columns"]))
    known = np.isfinite(np.load(tmp_path / "out" / "map.npz")["elevation"])
    edge = known & ~binary_erosion(known)
    assert np.median(certain[known]) > 0.9
    assert np.median(certain[edge]) < 0.8
    assert certain[edge].min() < 0.3
    assert np.median(certain[~known]) < 0.3


@pytest.mark.parametrize("kernel", ["rbf", "matern32"])
def test_windows_join_without_a_seam(hills: np.ndarray, tmp_path: Path, kernel: str) -> None:
    points = hills - [500_000.0, 4_000_000.0, 250.0]
    config = with_settings(
        Config(),
        {
            "mapping.kernel": kernel, "mapping.resolution": 0.25, "mapping.length_scale": 1.0,
            "noise.height_std": 0.03,
        },
    )  # fmt: skip
    survey = SmallSurvey(config, trend_of(points, 8.0), tmp_path, [points])
    whole = survey.window(slice(0, 160), slice(0, 160))
    left, right = survey.window(slice(0, 160), slice(0, 83)), survey.window(slice(0, 160), slice(83, 160))
    joined = np.hstack([left["elevation"], right["elevation"]])
    assert np.nanmax(np.abs(joined - whole["elevation"])) < 2e-3


def test_the_trend_has_the_gradient_that_it_says() -> None:
    heights = np.random.default_rng(1).normal(size=(7, 9))
    trend = Trend(heights, (2.0, 3.0), 4.0)
    xy = np.random.default_rng(2).uniform(-5.0, 45.0, (300, 2))
    value, gradient = trend.with_gradient(xy)
    assert trend.at(xy) == pytest.approx(value, abs=1e-12)
    step = 1e-5
    for axis in (0, 1):
        shift = np.eye(2)[axis] * step
        numeric = (trend.at(xy + shift) - trend.at(xy - shift)) / (2.0 * step)
        assert gradient[:, axis] == pytest.approx(numeric, abs=1e-6)


def test_ground_is_chosen_where_points_are_classified(hills: np.ndarray, tmp_path: Path) -> None:
    import laspy

    las = laspy.read(write(tmp_path, hills[:6000], "las"))
    classes = np.array(las.classification)
    classes[::3] = 5  # high vegetation
    las.classification = classes
    las.write(tmp_path / "mixed.las")
    source = open_points(tmp_path / "mixed.las")
    assert "ground" in source.note
    assert sum(len(piece) for piece in source.pieces()) == 4000
    assert sum(len(piece) for piece in open_points(tmp_path / "mixed.las", classes=(5,)).pieces()) == 2000


def test_bad_files_are_named_with_the_reason(gpgmap, tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_text("no")
    (tmp_path / "b.ply").write_text("plyers")
    (tmp_path / "c.xyz").write_text("1 2\n")
    np.savez(tmp_path / "d.npz", heights=np.zeros(3))
    for name, reason in (
        ("a.docx", "not known as a point cloud"),
        ("b.ply", "does not begin with 'ply'"),
        ("c.xyz", "has 2 columns, expected x y z"),
        ("d.npz", "neither xyz, points, nor x, y, z, but heights"),
        ("e.las", "no such file"),
    ):
        with pytest.raises(PointFileError, match=reason):
            open_points(tmp_path / name)
    result = gpgmap("map", "a.docx", code=1)
    assert result.stderr.startswith("gpgmap map: a.docx: not known as a point cloud")
    assert (
        "expected the code of a projected coordinate system"
        in gpgmap("map", "d.npz", "--crs", "UTM", code=2).stderr
    )


def test_a_file_that_was_cut_off(hills: np.ndarray, tmp_path: Path) -> None:
    for kind in ("ply", "pcd"):
        file = write(tmp_path, hills[:5000], kind)
        file.write_bytes(file.read_bytes()[:-1000])
        with pytest.raises(PointFileError, match=r"it ends after [\d,]+ of 5,000 points"):
            list(open_points(file).pieces())


def test_files_in_different_systems_are_refused(gpgmap, hills: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", xyz=hills, epsg=32611)
    np.savez(tmp_path / "b.npz", xyz=hills, epsg=32612)
    assert "different coordinate systems" in gpgmap("map", "a.npz", "b.npz", code=2).stderr


@pytest.mark.parametrize("separator", [";", " ", "\t"])
@pytest.mark.parametrize("head", ["", "X{0}Y{0}Z\n", "Easting{0}Northing{0}Elevation\n"])
def test_numbers_with_a_decimal_comma(separator: str, head: str, tmp_path: Path) -> None:
    """As spreadsheets of half of Europe write them: read as separators, the commas would make other points of them."""
    points = np.array([[500000.25, 4000000.5, 12.0], [500001.0, 4000001.75, -13.125]] * 8)
    lines = [separator.join(f"{value:.3f}" for value in row).replace(".", ",") for row in points]
    (tmp_path / "points.txt").write_text(head.format(separator) + "\n".join(lines) + "\n")
    np.testing.assert_array_equal(np.concatenate(list(open_points(tmp_path / "points.txt").pieces())), points)


def test_columns_called_by_their_letters_come_first(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("height,x,y,z\n" + "7.5,1.0,2.0,3.0\n" * 12)
    np.testing.assert_array_equal(next(open_points(tmp_path / "points.csv").pieces())[0], [1.0, 2.0, 3.0])


def test_text_that_can_be_read_in_two_ways_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thousands.txt").write_text("500.000,25;4.000.000,5;12,0\n" * 20)
    (tmp_path / "numbered.txt").write_text("".join(f"{k} {5e5 + k * k} 4000000.5 {k}.5\n" for k in range(20)))
    with pytest.raises(PointFileError, match="points and commas"):
        open_points(tmp_path / "thousands.txt")
    with pytest.raises(PointFileError, match="counts the lines"):
        open_points(tmp_path / "numbered.txt")
    raster = "".join(f"{k % 12} {k // 12} 5.0 {k}\n" for k in range(48))
    (tmp_path / "raster.txt").write_text(raster)
    assert np.concatenate(list(open_points(tmp_path / "raster.txt").pieces())).shape == (48, 3)


def test_points_with_y_up_are_doubted(gpgmap, hills: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "y_up.npz", xyz=np.ascontiguousarray((hills - hills[0])[:, [0, 2, 1]]))
    run = gpgmap("map", "y_up.npz", *options(FAST), "--set", "mapping.resolution=0.5", "--json")
    assert "is z up" in json.loads(run.stdout)["warnings"][0]


def test_degrees_are_refused_with_or_without_a_system(gpgmap, hills: np.ndarray, tmp_path: Path) -> None:
    degrees = (hills - hills[0]) * [1e-5, 1e-5, 1.0] + [-117.0, 37.0, 0.0]
    np.savez(tmp_path / "named.npz", xyz=degrees, epsg=4326)
    np.savez(tmp_path / "silent.npz", xyz=degrees)
    assert "longitude and latitude (EPSG:4326)" in gpgmap("map", "named.npz", code=1).stderr
    assert "are the coordinates degrees" in gpgmap("map", "silent.npz", code=1).stderr


def test_a_survey_in_feet_says_so(gpgmap, hills: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "feet.npz", xyz=hills / 0.3048, epsg=2229)
    run = gpgmap("map", "feet.npz", *options(FAST), "--set", "mapping.resolution=2", "--json")
    assert json.loads(run.stdout)["warnings"] == [
        "the coordinates are in feet (EPSG:2229): so is all that is called m here, areas and settings too"
    ]


def test_heights_in_another_unit_than_positions_are_refused(hills: np.ndarray, tmp_path: Path) -> None:
    """Slopes would be wrong by the ratio of the two."""
    pyproj = pytest.importorskip("pyproj", reason="pyproj is not installed")
    system = pyproj.CRS.from_user_input("EPSG:26911+6360")
    for version in ("WKT1_GDAL", "WKT2_2019"):
        with pytest.raises(SurveyError, match=r"positions are in metres and heights in feet"):
            check_units(Crs(26911, wkt=system.to_wkt(version)))
    assert check_units(Crs(26911, wkt=pyproj.CRS("EPSG:26911+5703").to_wkt("WKT1_GDAL"))) == []
    keys = (1, 1, 0, 3, 1024, 0, 1, 1, 3072, 0, 1, 26911, 4099, 0, 1, 9003)
    with pytest.raises(SurveyError, match="heights in feet"):
        check_units(Crs(26911, keys=(keys, (), "")))
    degrees = (1, 1, 0, 1, 1024, 0, 1, 2)
    with pytest.raises(SurveyError, match="longitude and latitude"):
        check_units(Crs(keys=(degrees, (), "")))


def test_where_the_noise_comes_from_is_said(hills: np.ndarray) -> None:
    flat = hills * [1.0, 1.0, 0.0]
    scatter = np.outer(np.random.default_rng(1).normal(size=len(flat)), [0.0, 0.0, 1.0])
    for points, reason in (
        (flat + 0.05 * scatter, "scatter within a cell"),
        (flat + 0.005 * scatter, "the least that is assumed; the scatter within a cell is 0.00"),
        (flat, "assumed, because too few cells"),
    ):
        (guess,) = plan_sample(points, None, "points", Config(), {"mapping.resolution"}).guesses
        assert f"m: {reason}" in guess


def test_the_code_is_that_of_the_projected_system() -> None:
    wkt = (
        'COMPD_CS["x",PROJCS["NAD83 / UTM zone 11N",GEOGCS["NAD83",AUTHORITY["EPSG","4269"]],UNIT["metre",1,'
        'AUTHORITY["EPSG","9001"]],AUTHORITY["EPSG","26911"]],VERT_CS["NAVD88",AUTHORITY["EPSG","5703"]]]'
    )
    assert epsg_of(wkt) == 26911
    assert epsg_of('PROJCS["own",GEOGCS["NAD83",AUTHORITY["EPSG","4269"]],UNIT["metre",1]]') == 0
    assert epsg_of('GEOGCS["NAD83",AUTHORITY["EPSG","4269"]]') == 0


def test_the_real_survey(gpgmap, data_folder: Path, tmp_path: Path) -> None:
    summary = json.loads(
        gpgmap(
            "map",
            data_folder / "als_blanca.npz",
            "--out",
            "out",
            "--json",
            *SETTINGS,
            "--set",
            "mapping.resolution=1",
        ).stdout
    )
    assert summary["points"]["used"] == 574_092
    assert 45_000 < summary["map"]["known_m2"] < 60_000
    survey = np.load(data_folder / "als_blanca.npz")
    xyz = survey["xyz"].astype(np.float64) + survey["offset"]
    with rasterio.open(tmp_path / "out" / "layers" / "elevation.tif") as tif:
        heights = np.array([value[0] for value in tif.sample(xyz[::500, :2])])
    error = heights - xyz[::500, 2]
    assert np.isfinite(error).mean() > 0.99
    assert np.nanmedian(np.abs(error)) < 0.3  # steep ground: half a cell away it is tens of centimetres lower


def test_pieces_are_read_one_ahead_in_order_and_errors_arrive() -> None:
    begun: list[int] = []

    def pieces() -> Iterator[np.ndarray]:
        for number in range(5):
            begun.append(number)
            yield np.full((2, 3), float(number))
        raise PointFileError("it ends here")

    seen: list[float] = []

    def use() -> None:
        for piece in read_ahead(pieces()):
            seen.append(piece[0, 0])
            assert len(begun) <= len(seen) + 1, "more than one piece ahead: memory would not be bounded"

    with pytest.raises(PointFileError, match="it ends here"):
        use()
    assert seen == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("COUNT 1 1 1", "COUNT 1 1 0"), "its z must be one number"),
        (("COUNT 1 1 1", "COUNT 1 2 1"), "its y must be one number"),
        (("POINTS 4", "POINTS -4"), "its header says -4 points"),
    ],
)
def test_a_pcd_header_that_can_not_be_true_is_refused(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    fields = "FIELDS x y z\nSIZE 8 8 8\nTYPE F F F\nCOUNT 1 1 1\n"
    header = f"VERSION 0.7\n{fields}WIDTH 4\nHEIGHT 1\nPOINTS 4\nDATA binary\n"
    path = tmp_path / "a.pcd"
    content = np.arange(16.0).tobytes()
    path.write_bytes(header.encode() + content)
    np.testing.assert_array_equal(next(open_points(path).pieces()), np.arange(12.0).reshape(4, 3))
    path.write_bytes(header.replace(*change).encode() + content)
    with pytest.raises(PointFileError, match=rf"a\.pcd: cannot be read: {message}"):
        list(open_points(path).pieces())
