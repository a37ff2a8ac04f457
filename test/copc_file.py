"""A small COPC file, written as the specification says (copc.io, 1.0): laspy reads such files, but writes none."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import laspy
import lazrs
import numpy as np
from laspy.vlrs.vlr import VLR

INFO_BYTES = 160


def write_copc(path: Path, xyz: np.ndarray, levels: int = 3) -> dict[tuple[int, int, int, int], np.ndarray]:
    """Write points (N, 3) into an octree; those of each node (level, x, y, z).

    Every point is in the node of a level that is drawn for it: an eighth at each level of those below it.
    """
    rng = np.random.default_rng(0)
    low = xyz.min(axis=0)
    half = float(np.ptp(xyz, axis=0).max()) / 2.0 + 0.5
    level = np.minimum(rng.geometric(0.6, len(xyz)) - 1, levels - 1)[::-1]
    level = levels - 1 - level
    nodes: dict[tuple[int, int, int, int], np.ndarray] = {}
    for depth in range(levels):
        own = xyz[level == depth]
        cells = np.floor((own - low) / (2.0 * half / 2**depth)).astype(int)
        for cell in np.unique(cells, axis=0):
            nodes[depth, *map(int, cell)] = own[(cells == cell).all(axis=1)]
    header = laspy.LasHeader(point_format=6, version="1.4")
    header.offsets, header.scales = low.round(), np.array([0.001] * 3)
    info = VLR("copc", 1, "info", bytes(INFO_BYTES))
    zipped = lazrs.LazVlr.new_for_compression(6, 0, True)  # chunks of any size
    header.vlrs.append(info)
    header.vlrs.append(VLR("laszip encoded", 22204, "", zipped.record_data()))
    header.are_points_compressed = True
    header.point_count = len(xyz)
    header.mins, header.maxs = xyz.min(axis=0), xyz.max(axis=0)
    stream = io.BytesIO()
    header.write_to(stream, ensure_same_size=False)
    packer = lazrs.LasZipCompressor(stream, zipped)
    entries, at = [], stream.tell() + 8  # after the offset of the chunk table
    for key, points in nodes.items():
        record = laspy.ScaleAwarePointRecord.zeros(len(points), header=header)
        record.x, record.y, record.z = points.T
        packer.compress_many(np.frombuffer(record.memoryview(), dtype=np.uint8))
        packer.finish_current_chunk()
        entries.append((*key, at, stream.tell() - at, len(points)))
        at = stream.tell()
    packer.done()
    page = b"".join(struct.pack("<iiiiQii", *entry) for entry in entries)
    begin = stream.seek(0, io.SEEK_END)
    stream.write(struct.pack("<H16sHQ32s", 0, b"copc", 1000, len(page), b"") + page)
    data = bytearray(stream.getvalue())
    spacing = 2.0 * half / 32.0
    place = 375 + 54  # after the headers of the file and of its first record
    middle = low + half
    struct.pack_into("<dddddQQdd", data, place, *middle, half, spacing, begin + 60, len(page), 0.0, 0.0)
    struct.pack_into("<QI", data, 235, begin, 1)  # where extended records begin, and how many
    path.write_bytes(data)
    return nodes
