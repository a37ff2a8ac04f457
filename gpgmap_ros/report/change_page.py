"""The page of a comparison: before and after under a slider, the difference with its patches, volumes in a table."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.arrays import Array
from gpgmap_ros.change import Comparison
from gpgmap_ros.mapping.layers import ColourScale
from gpgmap_ros.report.content import shrunk
from gpgmap_ros.report.encoding import data_uri
from gpgmap_ros.report.page import FOLDER, fill_template
from gpgmap_ros.storage.atomic import write_text
from gpgmap_ros.viz.rendering import (
    STYLES,
    Pixels,
    colour_layer,
    colour_table,
    png,
    relief_shade,
    shade_pixels,
    transparent,
)

MOST_CELLS = 1_000_000
"""Of a picture; a larger map is shown with coarser cells."""
MOST_ROWS = 100
"""Patches in the table; run.json has all."""
DIFFERENCE = ColourScale("Difference", "m", "RdBu_r", symmetric=True)
LIMIT_STDS = 3.0
"""Median standard deviations that the colours of the difference span, at least."""
FILES = (
    ("layers/difference.tif", "height after minus before, GeoTIFF"),
    ("layers/difference_std.tif", "its standard deviation"),
    ("layers/change.tif", "1 fill, -1 cut, 0 no change that could be told"),
    ("layers/p_value.tif", "significance of each cell alone"),
    ("layers/q_value.tif", "false discovery rate at which each cell is called changed"),
    ("run.json", "the numbers of this page"),
)


def write_change_report(path: Path, found: Comparison, summary: dict[str, Any]) -> None:
    """Write the page. summary: as run.json has it"""
    factor = max(1, int(np.ceil(np.sqrt(found.difference.size / MOST_CELLS))))
    before, after, difference = (
        shrunk(layer, factor) for layer in (found.before, found.after, found.difference)
    )
    limit = difference_limit(found)
    pictures = relief_pictures(before, after, found.grid.resolution * factor)
    colours = colour_table(DIFFERENCE)[::16]
    style = (FOLDER / "page.css").read_text() + (FOLDER / "change.css").read_text().replace(
        "{{colours}}", ", ".join(f"rgb({r},{g},{b})" for r, g, b in colours)
    )
    rows, columns = found.difference.shape
    parts = {
        "{{title}}": escape(f"{Path(summary['before']).name} to {Path(summary['after']).name}"),
        "{{style}}": style,
        "{{script}}": (FOLDER / "script" / "before_after.js").read_text(),
        "{{abstract}}": escape(describe_change(summary)),
        "{{facts}}": "".join(
            f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts(summary)
        ),
        "{{before}}": pictures[0],
        "{{after}}": pictures[1],
        "{{difference}}": picture(colour_layer(difference, DIFFERENCE, (-limit, limit)), difference),
        "{{shown}}": "Difference: red is fill, blue is cut",
        "{{limit}}": f"{limit:.2g}",
        "{{rows}}": str(rows),
        "{{columns}}": str(columns),
        "{{marks}}": marks(found),
        "{{caption}}": escape(caption(summary)),
        "{{patches}}": patch_table(found),
        "{{certainty}}": escape(describe_certainty(summary)),
        "{{files}}": "".join(f'<li><a href="{name}">{name}</a> {escape(text)}</li>' for name, text in FILES),
        "{{made}}": escape(summary["made"]),
    }
    write_text(path, fill_template((FOLDER / "change.html").read_text(), parts))


def difference_limit(found: Comparison) -> float:
    """Metres at the ends of the scale of colours: the clear changes, or what errors reach where there are none."""
    least = LIMIT_STDS * float(np.nanmedian(found.std))
    largest = max((abs(patch.extreme) for patch in found.patches), default=0.0)
    return max(least, min(largest, 10.0 * least))


def relief_pictures(before: Array, after: Array, resolution: float) -> tuple[str, str]:
    """Both surveys with one scale of colours."""
    both = np.concatenate([before[np.isfinite(before)], after[np.isfinite(after)]])
    low, high = (float(value) for value in np.quantile(both, [0.01, 0.99]))
    out = []
    for layer in (before, after):
        g_y, g_x = (np.gradient(layer, resolution, axis=axis) for axis in (0, 1))
        pixels = colour_layer(layer, STYLES["elevation"], (low, max(high, low + 1e-6)))
        out.append(picture(shade_pixels(pixels, relief_shade(g_x, g_y)), layer))
    return out[0], out[1]


def picture(pixels: Pixels, layer: Array) -> str:
    return data_uri(png(transparent(pixels, np.isfinite(layer)), level=6))


def marks(found: Comparison) -> str:
    """A square around each patch, as SVG in cells from the north-western corner."""
    out = []
    for patch in found.patches:
        side = np.sqrt(patch.area) / found.grid.resolution
        x = (patch.x - found.grid.origin[0]) / found.grid.resolution
        y = found.difference.shape[0] - (patch.y - found.grid.origin[1]) / found.grid.resolution
        out.append(
            f'<rect x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side:.1f}" height="{side:.1f}"/>'
        )
    return "".join(out)


def volume_text(volume: tuple[float, float, float]) -> str:
    value, low, high = volume
    return f"{value:.3g} m³ ({low:.3g} to {high:.3g})"


def describe_change(summary: dict[str, Any]) -> str:
    """What changed, in a sentence or two."""
    patches = summary["patches"]
    if not patches:
        return (
            f"No change could be told from the error of the two surveys on {summary['compared_m2']:,.0f} m² of ground,"
            f" at a false discovery rate of {summary['level']:.0%}."
        )
    fills = sum(patch["kind"] == "fill" for patch in patches)
    return (
        f"{len(patches)} {'patch' if len(patches) == 1 else 'patches'} changed on {summary['compared_m2']:,.0f} m² of"
        f" ground, {fills} of fill and {len(patches) - fills} of cut, at a false discovery rate of"
        f" {summary['level']:.0%}. Volumes are given with their 95 % intervals."
    )


def facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("fill", volume_text(summary["fill_m3"])),
        ("cut", volume_text(summary["cut_m3"])),
        ("net", volume_text(summary["net_m3"])),
        ("difference, 1 std", f"{summary['median_std_m']:.3f} m (median)"),
        ("cells", f"{summary['resolution_m']:g} m"),
        ("frames", summary["pose"]),
    ]


def caption(summary: dict[str, Any]) -> str:
    if not summary["aligned"]:
        return "The coordinates were compared as they are: a motion of the whole ground counts as change."
    motion, std = summary["motion"], summary["motion_std"]
    moved = ", ".join(f"{axis} {motion[axis]:.3f} ± {std[axis]:.3f} m" for axis in "xyz")
    return (
        f"Unchanged ground shows that the later survey is off by {moved}; that, and the small rotations in run.json,"
        " have been removed."
    )


def patch_table(found: Comparison) -> str:
    """The patches, largest first."""
    if not found.patches:
        return "<p>None.</p>"
    head = ("", "kind", "x, m", "y, m", "area, m²", "volume, m³", "95 % interval", "largest, m", "false rate")
    lines = ["<tr>" + "".join(f"<th>{name}</th>" for name in head) + "</tr>"]
    for number, patch in enumerate(found.patches[:MOST_ROWS], 1):
        low, high = patch.interval
        cells = (
            str(number), patch.kind, f"{patch.x:.2f}", f"{patch.y:.2f}", f"{patch.area:.3g}", f"{patch.volume:.3g}",
            f"{low:.3g} to {high:.3g}", f"{patch.extreme:.3f}", f"{patch.false_rate:.3f}",
        )  # fmt: skip
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    more = len(found.patches) - MOST_ROWS
    note = f"<p>{more} smaller ones are in run.json.</p>" if more > 0 else ""
    return f"<table>{''.join(lines)}</table>{note}"


def describe_certainty(summary: dict[str, Any]) -> str:
    """The error model in words."""
    text = (
        "The standard deviation of a difference is estimated from the ground that did not change:"
        f" {summary['median_std_m']:.3f} m in the median cell. The two surveys have an error floor of"
        f" {summary['floor_std_m']:.3f} m on level ground, which neither of the maps states. Errors are alike over"
        f" {summary['correlated_m2']:.3g} m². {summary['share_significant_alone']:.1%} of the cells differ"
        f" significantly at the level of {summary['level']:.0%} if each is looked at alone; without any change that"
        f" would be {summary['level']:.0%}."
    )
    if summary["patches"]:
        text += (
            " Volumes err by the sum of correlated errors, with that of the alignment: their standard deviation is"
            f" {summary['volume_std_ratio']:.1f} times what independent cells would give."
        )
    return text
