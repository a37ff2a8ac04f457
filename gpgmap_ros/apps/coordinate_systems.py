"""The coordinate system of files of points: one for all, in units that a map can be made in."""

from __future__ import annotations

from collections.abc import Sequence

from gpgmap_ros.apps.survey_plan import SurveyError
from gpgmap_ros.io.crs_units import DEGREES, METRE, same, unit_name, units_of
from gpgmap_ros.io.geotiff import Crs


class MixedSystemsError(SurveyError):
    """Files in different coordinate systems: which."""


def common_crs(files: Sequence[tuple[str, Crs]]) -> tuple[Crs, list[str]]:
    """The coordinate system of all files (names, and what each says), and warnings; MixedSystemsError where it differs.

    SurveyError where no map can be made in it.
    """
    known = {crs.label: (name, crs) for name, crs in files if crs.label}
    if len(known) > 1:
        named = ", ".join(f"{name} in {label}" for label, (name, _) in known.items())
        raise MixedSystemsError(
            f"the files have different coordinate systems: {named}. Convert them first, or set one with --crs"
        )
    silent = [name for name, crs in files if not crs.label]
    warnings = [f"assumed to be in {next(iter(known))}: {', '.join(silent)}"] if known and silent else []
    crs = next(iter(known.values()))[1] if known else Crs()
    return crs, [*warnings, *check_units(crs)]


def check_units(crs: Crs) -> list[str]:
    """What is to be known about the units of a coordinate system; SurveyError where no map can be made in them."""
    units = units_of(crs)
    if units.horizontal == DEGREES:
        raise SurveyError(
            f"the coordinates are longitude and latitude ({crs.label}), in degrees: a map needs lengths. Convert the"
            " files to a projected system first, as with `pdal translate IN OUT reprojection"
            " --filters.reprojection.out_srs=EPSG:...`"
        )
    positions, heights = unit_name(units.horizontal or METRE), unit_name(units.vertical or METRE)
    if units.differ:
        raise SurveyError(
            f"positions are in {positions} and heights in {heights} ({crs.label}): slopes would be wrong. Convert the"
            " files first, so that both are in metres"
        )
    if units.horizontal is not None and not same(units.horizontal, METRE):
        return [
            f"the coordinates are in {positions} ({crs.label}): so is all that is called m here, areas and settings too"
        ]
    return []
