"""A GDAL virtual raster: one file of text that shows many GeoTIFFs as one layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from gp_core.grid import Grid
from gpgmap_ros.io.geotiff import TILE, Crs
from gpgmap_ros.storage.atomic import write_text


@dataclass(frozen=True)
class Source:
    """A file of a layer. top, left: row from the north and column of its first cell; shape: rows and columns"""

    path: Path
    top: int
    left: int
    shape: tuple[int, int]


def write_vrt(
    path: Path, grid: Grid, crs: Crs, sources: Sequence[Source], description: str = "", unit: str = ""
) -> None:
    """Write a raster of the whole `grid`; cells of no source are unknown. Paths are kept relative to it."""
    rows, columns = grid.shape
    north = grid.origin[1] + rows * grid.resolution
    edge = repr(grid.resolution)
    system = f"EPSG:{crs.epsg}" if crs.epsg else crs.wkt
    lines = [
        f'<VRTDataset rasterXSize="{columns}" rasterYSize="{rows}">',
        *([f"  <SRS>{escape(system)}</SRS>"] if system else []),
        f"  <GeoTransform>{grid.origin[0]!r}, {edge}, 0.0, {north!r}, 0.0, -{edge}</GeoTransform>",
        '  <VRTRasterBand dataType="Float32" band="1">',
        f"    <Description>{escape(description)}</Description>",
        f"    <UnitType>{escape(unit)}</UnitType>",
        "    <NoDataValue>nan</NoDataValue>",
        *(line for source in sources for line in _source(source, path.parent)),
        "  </VRTRasterBand>",
        "</VRTDataset>",
    ]
    write_text(path, "\n".join(lines) + "\n")


def _source(source: Source, folder: Path) -> list[str]:
    name = escape(source.path.relative_to(folder).as_posix())
    rows, columns = source.shape
    size = f"xSize={quoteattr(str(columns))} ySize={quoteattr(str(rows))}"
    return [
        "    <SimpleSource>",
        f'      <SourceFilename relativeToVRT="1">{name}</SourceFilename>',
        "      <SourceBand>1</SourceBand>",
        f'      <SourceProperties RasterXSize="{columns}" RasterYSize="{rows}" DataType="Float32"'
        f' BlockXSize="{TILE}" BlockYSize="{TILE}"/>',
        f'      <SrcRect xOff="0" yOff="0" {size}/>',
        f'      <DstRect xOff="{source.left}" yOff="{source.top}" {size}/>',
        "    </SimpleSource>",
    ]
