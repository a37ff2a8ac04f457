"""The report of a survey."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpgmap_ros.apps.survey_overview import Overview
from gpgmap_ros.config import Config
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping.layers import reported_layers
from gpgmap_ros.report.content import Content, describe_origin, encoded_layers, settings_rows
from gpgmap_ros.report.page import write_report


def write_survey_report(
    folder: RunFolder, summary: dict[str, Any], config: Config, overview: Overview, crs: Crs
) -> None:
    """Write report.html of a complete survey."""
    map_, grid = summary["map"], overview.grid
    height, width = (size * grid.resolution for size in grid.shape)
    content = Content(
        title=summary["name"],
        subtitle=f"GPGMap report · {', '.join(Path(item).name for item in summary['sources'])}",
        abstract=summarise_in_words(summary),
        facts=[
            ("points", f"{summary['points']['used']:,}"),
            ("extent", f"{width:,.0f} x {height:,.0f} m"),
            ("known ground", f"{map_['known_m2']:,.0f} m²"),
            ("coordinates", crs.label or "no coordinate system given"),
            ("reading and adding", f"{summary['points']['per_second'] / 1e6:.1f} M points/s"),
        ],
        map=encode_overview(overview, crs, map_["resolution_m"]),
        timings=list(summary["timings_s"].items()),
        warnings=list(summary["warnings"]),
        settings=settings_rows(config),
        files=[
            *([("map.npz", "all layers")] if map_["npz"] else []),
            ("layers/elevation.tif", "cloud-optimised GeoTIFF, one file per layer")
            if map_["npz"]
            else ("layers/elevation.vrt", "all sheets of a layer, cloud-optimised GeoTIFFs, as one"),
            ("config.yaml", "the effective settings"),
            ("run.json", "the numbers of this page"),
        ],
        made=describe_origin(),
    )
    write_report(folder.report, content)


def summarise_in_words(summary: dict[str, Any]) -> str:
    """The survey in a sentence or two."""
    map_ = summary["map"]
    text = (
        f"{summary['points']['used']:,} points make a map of {map_['known_m2']:,.0f} m² of ground in cells of"
        f" {map_['resolution_m']:g} m."
    )
    return text + (
        f" Estimated from a sample: {'; '.join(summary['guesses'])}." if summary["guesses"] else ""
    )


def encode_overview(overview: Overview, crs: Crs, resolution: float) -> dict[str, Any]:
    """The map of the page. resolution: of the files, metres"""
    shown = encoded_layers(
        {name: overview.layers[name] for name in reported_layers()},
        overview.grid,
        crs.label or "the files' coordinates",
        overview.certainty,
    )
    if overview.factor > 1:
        shown["note"] = (
            f"Shown with cells of {overview.grid.resolution:g} m; the files have {resolution:g} m."
        )
    return shown
