"""Positions on the WGS 84 ellipsoid in UTM and in earth-centred coordinates, by pyproj."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpgmap_ros.geometry import Array
from gpgmap_ros.optional_packages import explain_missing

EARTH_RADIUS = 6_371_000.0
"""Metres."""


class GeodesyError(ValueError):
    """Coordinates that can't be converted: why, and what to do."""


def load_pyproj() -> Any:
    try:
        import pyproj
    except ImportError as error:
        raise GeodesyError(explain_missing(error)) from error
    return pyproj


@dataclass(frozen=True)
class UtmZone:
    """The UTM zone around a place.

    epsg: its code; name: as in "WGS 84 / UTM zone 32N"
    scale: metres of the grid over metres on the ground there: of the projection, and of the height above the ellipsoid
    convergence: radians from true north to grid north, clockwise
    """

    epsg: int
    name: str
    scale: float
    convergence: float
    _proj: Any

    @classmethod
    def around(cls, latitude: float, longitude: float, altitude: float) -> UtmZone:
        """GeodesyError near the poles, where there is no zone, and where pyproj is not installed."""
        pyproj = load_pyproj()
        epsg, name = _find_zone(round(latitude, 2), round(longitude, 2))
        proj = pyproj.Proj(epsg)
        factors = proj.get_factors(longitude, latitude)
        height = altitude if np.isfinite(altitude) else 0.0
        scale = float(factors.meridional_scale) / (1.0 + height / EARTH_RADIUS)
        return cls(epsg, name, scale, float(np.deg2rad(factors.meridian_convergence)), proj)

    def forward(self, latitude: Array, longitude: Array) -> Array:
        """(N, 2) east and north, metres of the grid."""
        return np.column_stack(self._proj(longitude, latitude))

    def inverse(self, east: float, north: float) -> tuple[float, float]:
        """Latitude and longitude, degrees."""
        longitude, latitude = self._proj(east, north, inverse=True)
        return float(latitude), float(longitude)


@lru_cache(maxsize=16)
def _find_zone(latitude: float, longitude: float) -> tuple[int, str]:
    """EPSG code and name; kept, because the search through the database takes a tenth of a second."""
    pyproj = load_pyproj()
    area = pyproj.aoi.AreaOfInterest(longitude, latitude, longitude, latitude)
    found = pyproj.database.query_utm_crs_info(datum_name="WGS 84", area_of_interest=area)
    if not found:
        raise GeodesyError(f"there is no UTM zone at latitude {latitude:.2f}: its maps end at 84 N and 80 S")
    return int(found[0].code), str(found[0].name)


def earth_from_enu(latitude: float, longitude: float, altitude: float) -> Array:
    """(4, 4) from east, north and up at a place to earth-centred, earth-fixed coordinates (REP-105 `earth`)."""
    pyproj = load_pyproj()
    to_earth = pyproj.Transformer.from_crs(4979, 4978, always_xy=True)
    lat, lon = np.deg2rad(latitude), np.deg2rad(longitude)
    T = np.eye(4)
    T[:3, 0] = [-np.sin(lon), np.cos(lon), 0.0]
    T[:3, 1] = [-np.sin(lat) * np.cos(lon), -np.sin(lat) * np.sin(lon), np.cos(lat)]
    T[:3, 2] = [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)]
    T[:3, 3] = to_earth.transform(longitude, latitude, altitude)
    return T
