"""The report of a survey."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpgmap_ros.apps.survey_job import NAMED
from gpgmap_ros.apps.survey_overview import Overview
from gpgmap_ros.config import Config
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping.layers import reported_layers
from gpgmap_ros.report.content import Content, describe_origin, encoded_layers, settings_rows
from gpgmap_ros.report.page import write_report


def write_survey_report(
    folder: RunFolder, summary: dict[str, Any], config: Config, shown: dict[str, Any], crs: Crs
) -> None:
    """Write report.html of a complete survey. shown: the page's map, see `encode_overview`, and its tiles"""
    map_ = summary["map"]
    height, width = (size * map_["resolution_m"] for size in map_["cells"])
    shown = {**shown, "note": describe_cells(shown, map_["resolution_m"])}
    content = Content(
        title=summary["name"],
        subtitle=f"GPGMap report · {name_sources(summary['sources'])}",
        abstract=summarise_in_words(summary),
        facts=[
            ("points", f"{summary['points']['used']:,}"),
            ("extent", f"{width:,.0f} x {height:,.0f} m"),
            ("known ground", f"{map_['known_m2']:,.0f} m²"),
            ("coordinates", crs.label or "no coordinate system given"),
            ("reading and adding", f"{summary['points']['per_second'] / 1e6:.2g} M points/s"),
        ],
        map=shown,
        timings=list(summary["timings_s"].items()),
        warnings=list(summary["warnings"]),
        settings=settings_rows(config),
        files=[
            *([("map.npz", "all layers")] if map_["npz"] else []),
            ("layers/elevation.tif", "cloud-optimised GeoTIFF, one file per layer")
            if map_["npz"]
            else ("layers/elevation.vrt", "all sheets of a layer, cloud-optimised GeoTIFFs, as one"),
            *(
                [(f"{folder.tiles.name}/", "the map that this page shows as you zoom in")]
                if shown["tiles"]
                else []
            ),
            ("item.json", "the GeoTIFFs as a STAC item"),
            ("config.yaml", "the effective settings"),
            ("run.json", "the numbers of this page"),
        ],
        made=describe_origin(),
    )
    write_report(folder.report, content)


def name_sources(sources: Sequence[str]) -> str:
    """The first files by name: a county has thousands."""
    names = ", ".join(Path(item).name for item in sources[:NAMED])
    return f"{names} and {len(sources) - NAMED} more" if len(sources) > NAMED else names


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


def encode_overview(overview: Overview, crs: Crs) -> dict[str, Any]:
    """The map of the page."""
    return encoded_layers(
        {name: overview.layers[name] for name in reported_layers()},
        overview.grid,
        crs.label or "the files' coordinates",
        overview.certainty,
    )


def describe_cells(shown: dict[str, Any], resolution: float) -> str:
    """What the reader must know where the page's cells are not those of the files. resolution: of these, metres"""
    coarse, tiles = shown["resolution"], shown["tiles"]
    if not tiles:
        return ""
    fine = tiles["levels"][0]["resolution"]
    files = "" if fine == resolution else f" The files have {resolution:g} m."
    return (
        f"Zoom in to see elevation and uncertainty in cells of {fine:g} m, from {tiles['folder']}/ beside this page;"
        f" the other layers keep {coarse:g} m.{files}"
    )
