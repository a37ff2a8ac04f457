"""Units of a coordinate system: a map has slopes only where positions and heights are lengths in the same one.

From GeoKeys or well-known text as files have them; of an EPSG code alone by pyproj, where that is installed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpgmap_ros.io.geotiff import Crs

METRE, DEGREES = 1.0, 0.0
MODEL_TYPE, GEOGRAPHIC_MODEL, LINEAR_UNITS, VERTICAL_UNITS = 1024, 2, 3076, 4099
EPSG_UNITS = {9001: METRE, 9002: 0.3048, 9003: 1200.0 / 3937.0}
SAME = 1e-5
"""Units that differ by less, as a share of themselves, are one: between the two kinds of feet there are 2e-6."""
NAMES = {METRE: "metres", 0.3048: "feet", DEGREES: "degrees"}


@dataclass(frozen=True)
class Units:
    """Metres in one unit of the positions and of the heights; `DEGREES` for longitude and latitude, None: not known."""

    horizontal: float | None = None
    vertical: float | None = None

    @property
    def differ(self) -> bool:
        """Whether heights are known to be in another unit than positions."""
        return bool(self.horizontal and self.vertical) and not same(self.horizontal, self.vertical)


def units_of(crs: Crs) -> Units:
    """The units of a coordinate system, as far as it says them."""
    if crs.wkt:
        return units_of_wkt(crs.wkt)
    found = units_of_keys(crs.keys[0]) if crs.keys else Units()
    if found.horizontal is None and crs.epsg:
        found = Units(units_of_epsg(crs.epsg).horizontal, found.vertical)
    return found


def units_of_wkt(wkt: str) -> Units:
    """Of well-known text, version 1 or 2: the unit of the axes is the last one of each part."""
    parts = re.split(r"\bVERT(?:_CS|CRS|ICALCRS)\[", wkt, maxsplit=1)
    lengths = [re.findall(r'\b(?:LENGTH)?UNIT\["[^"]*",\s*([-+.\deE]+)', part) for part in parts]
    units = [float(found[-1]) if found else None for found in lengths]
    if re.search(r"\b(?:GEOGCS|GEOGCRS|GEOGRAPHICCRS|GEODCRS)\[", parts[0]) and "PROJ" not in parts[0]:
        units[0] = DEGREES
    return Units(units[0], units[1] if len(units) > 1 else None)


def units_of_keys(keys: tuple[int, ...]) -> Units:
    """Of a GeoKeyDirectory."""
    values = {keys[at]: keys[at + 3] for at in range(4, len(keys) - 3, 4) if keys[at + 1] == 0}
    if values.get(MODEL_TYPE) == GEOGRAPHIC_MODEL:
        return Units(DEGREES)
    return Units(EPSG_UNITS.get(values.get(LINEAR_UNITS, 0)), EPSG_UNITS.get(values.get(VERTICAL_UNITS, 0)))


def units_of_epsg(code: int) -> Units:
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError:
        return Units()
    try:
        system = CRS.from_epsg(code)
    except CRSError:
        return Units()
    if system.is_geographic:
        return Units(DEGREES)
    axes = [axis.unit_conversion_factor for axis in system.axis_info]
    return Units(axes[0] if axes else None, axes[2] if len(axes) > 2 else None)


def same(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and abs(a - b) <= SAME * max(abs(a), abs(b))


def unit_name(unit: float | None) -> str:
    """For people."""
    return next((name for value, name in NAMES.items() if same(unit, value)), f"units of {unit:g} m")
