"""Decodes LAS and LAZ files in a process of its own, because a damaged LAZ file can end or stall the native decoder.

Requests are lines of JSON on standard input; answers are frames on standard output: a byte for the kind, eight for the
length, the content. Started by `decoder.py`; ends when its input does. Memory and processor time are limited.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import laspy
import lazrs
import numpy as np
from laspy.copc import Bounds, load_octree_for_query
from numpy.typing import NDArray

HEADER, POINTS, NONE, FAILURE, END = b"H", b"P", b"N", b"F", b"E"
FRAME = struct.Struct("<cQ")
PIECE = 250_000
"""Points decoded at a time."""
SECONDS, POINTS_PER_SECOND = 2, 50_000
"""Of a processor: for any step, and for decoding; usual are a hundredth, and a million points or more."""
SPARE_BYTES = 400 << 20
"""Memory beyond the size of the file."""
CHUNK = 50_000
"""Points that nearly all writers of LAZ compress together: decoding begins at the start of a chunk."""
POINTS_PER_BYTE = 100
"""No LAZ file of real points has more: one that says so would be decoded for hours."""
PLACES, AT_EACH = 16, 4096
"""Where classes are looked up, and how many points there."""
DENSE_NODES = 24
"""Of a COPC file, in which a sample has most points of a place."""
FIELDS = (
    laspy.DecompressionSelection.XY_RETURNS_CHANNEL
    | laspy.DecompressionSelection.Z
    | laspy.DecompressionSelection.CLASSIFICATION
)
"""The layers of a LAZ file (point formats 6 to 10) that a map needs: half of the decoding."""


class NoneOfClass(ValueError):
    """No point has the classes asked for: which there are."""


@dataclass(frozen=True)
class Places:
    """Which points of a file to decode.

    first, count: a range of them; to the end where count is None
    places: 0 for all in the range, else the beginnings of at most so many chunks in it, `each` points there; more
        where there are fewer chunks
    """

    first: int = 0
    count: int | None = None
    places: int = 0
    each: int = 0

    def ranges(self, total: int) -> list[tuple[int, int]]:
        """First point and number of points of each piece."""
        end = total if self.count is None else min(self.first + self.count, total)
        if not self.places:
            return [(start, min(PIECE, end - start)) for start in range(self.first, end, PIECE)]
        chunks = np.arange(self.first, max(end, self.first), CHUNK)
        if len(chunks) > self.places:
            chunks = chunks[np.linspace(0, len(chunks) - 1, self.places).round().astype(int)]
        each = min(self.each * self.places // max(len(chunks), 1), CHUNK)
        return [(int(start), min(each, end - int(start))) for start in chunks]


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    for line in sys.stdin:
        request = json.loads(line)
        path, begin = Path(request["path"]), time.process_time()
        limit_memory(path)
        try:
            if request["do"] == "open":
                send(out, HEADER, json.dumps(read_header(path, **request["window"])).encode())
            elif request["do"] == "sample":
                send_sample(out, path, request["classes"], request["points"], **request["window"])
            else:
                window = request.get("window")
                pieces = (
                    decode_points(path, request["classes"], Places(**request["places"]))
                    if window is None
                    else decode_nodes(path, request["classes"], **window)
                )
                for xyz in pieces:
                    send(out, POINTS, xyz.data)
            spent = {"largest_mb": largest_mb(), "processor_seconds": time.process_time() - begin}
            send(out, END, json.dumps(spent).encode())
        except BrokenPipeError:
            return
        except BaseException as error:  # a panic of the native decoder is no Exception
            text = " ".join(str(error).split()) or type(error).__name__
            if type(error).__module__.split(".")[0] in ("lazrs", "pyo3_runtime"):
                text = f"its compressed points end early or are damaged ({text}): copy it again"
            kind = NONE if isinstance(error, NoneOfClass) else FAILURE
            send(out, kind, text.encode(errors="replace"))


def send(out: BinaryIO, kind: bytes, content: bytes | memoryview) -> None:
    size = content.nbytes if isinstance(content, memoryview) else len(content)
    out.write(FRAME.pack(kind, size))
    out.write(content)
    out.flush()


def limit_memory(path: Path) -> None:
    """Of private memory: what threads and libraries merely reserve does not count."""
    size = path.stat().st_size if path.exists() else 0
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (SPARE_BYTES + size, hard))


def limit_time(points: int = 0) -> None:
    """For the next step, which decodes so many points. Beyond it the system ends this process, wherever it is."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    used = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 1 + SECONDS + points // POINTS_PER_SECOND, hard))


def largest_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines() if sys.platform == "linux" else []
    peak = next((line for line in lines if line.startswith("VmHWM")), "VmHWM: 0 kB")
    return float(peak.split()[1]) / 1024.0


def open_las(path: Path, threads: bool = True) -> laspy.LasReader:
    """The reader at the first point; ValueError where the header can't be true.

    threads: decode chunks in parallel; without, only the points that are asked for are decoded, not whole chunks
    """
    limit_time()
    backend = laspy.LazBackend.LazrsParallel if threads else laspy.LazBackend.Lazrs
    try:
        reader = laspy.open(path, decompression_selection=FIELDS, laz_backend=backend)
    except laspy.errors.LaspyException as error:
        raise ValueError(
            f"it is no LAS file, or its header is cut off or damaged ({error}): copy it again"
        ) from error
    header, size = reader.header, path.stat().st_size
    count, stored = int(header.point_count), size - int(header.offset_to_point_data)
    packed = header.are_points_compressed
    limit = size * POINTS_PER_BYTE if packed else max(stored, 0) // header.point_format.size
    if count > limit:
        reader.close()
        raise ValueError(
            f"its header says {count:,} points, but its {size:,} bytes can hold {limit:,} at most: it was cut off or"
            " is damaged; copy it again"
        )
    return reader


def read_header(path: Path, bounds: list[float] | None, spacing: float | None, most: int) -> dict[str, Any]:
    """The number of points, how many of each class in a few places, the extent, and the coordinates' records.

    bounds, spacing, most: of the groups of a COPC file, whose number is given (`find_nodes`, `group_nodes`)
    """
    with open_las(path, threads=False) as reader:
        header = reader.header
        count = int(header.point_count)
        places = Places(places=PLACES, each=AT_EACH)
        classes: dict[int, int] = {}
        for start, number in places.ranges(count) if count > PIECE else [(0, count)][: min(count, 1)]:
            limit_time(PIECE)
            reader.seek(start)
            add_classes(classes, np.asarray(reader.read_points(number).classification))
        records = [
            (int(record.record_id), base64.b64encode(bytes(record.record_data_bytes())).decode())
            for record in (*header.vlrs, *(getattr(header, "evlrs", None) or ()))
            if record.user_id == "LASF_Projection"
        ]
        extent = [*map(float, header.mins), *map(float, header.maxs)]
        copc = any(record.user_id == "copc" and record.record_id == 1 for record in header.vlrs)
    groups = 0
    if copc:
        with laspy.CopcReader.open(str(path)) as reader:
            groups = len(group_nodes(find_nodes(reader, bounds, spacing), most))
    return {
        "count": count, "classes": classes, "records": records, "bounds": extent, "copc": copc, "groups": groups,
    }  # fmt: skip


def decode_points(path: Path, classes: list[int] | None, places: Places) -> Iterator[NDArray[np.float64]]:
    """Coordinates (N, 3) of the points of some classes (None: of all), piece by piece."""
    found: dict[int, int] = {}
    used = 0
    with open_las(path, threads=not places.places) as reader:
        header = reader.header
        total, at = int(header.point_count), 0
        wanted = None if classes is None else np.isin(np.arange(256), classes)
        for start, number in places.ranges(total):
            limit_time(max(number, CHUNK))
            if start != at:
                reader.seek(start)
            points = reader.read_points(number)
            at = start + len(points)
            if len(points) < number:
                raise ValueError(f"it ends after {at:,} of {total:,} points: it was cut off; copy it again")
            raw = points.array
            if wanted is not None:
                kinds = np.asarray(points.classification)
                add_classes(found, kinds)
                raw = raw if wanted[kinds].all() else raw[wanted[kinds]]
            used += len(raw)
            yield coordinates(raw, header)
    if classes is not None and not used and places == Places():
        raise NoneOfClass(without_points(classes, found))


def coordinates(raw: NDArray[Any], header: Any) -> NDArray[np.float64]:
    """(N, 3) of records as they are in the file."""
    xyz = np.empty((len(raw), 3))
    for axis, name in enumerate("XYZ"):
        np.multiply(raw[name], header.scales[axis], out=xyz[:, axis])
        xyz[:, axis] += header.offsets[axis]
    return xyz


def find_nodes(reader: Any, bounds: list[float] | None, spacing: float | None) -> list[Any]:
    """Nodes with points of a COPC file that a box meets, down to a level, in the order of the file.

    bounds: smallest x and y, largest x and y
    spacing: of the points at the finest level that is read, metres
    """
    limit_time()
    header, info = reader.header, reader.copc_info
    box = None
    if bounds is not None:
        box = Bounds(np.array(bounds[:2]), np.array(bounds[2:])).ensure_3d(header.mins, header.maxs)
    levels = None
    if spacing is not None:  # the spacing of a level is half that of the one above it
        levels = range(max(int(np.ceil(np.log2(info.spacing / spacing))), 0) + 1)
    nodes = [
        node
        for node in load_octree_for_query(reader.source, info, reader.root_page, box, levels)
        if node.point_count
    ]
    for node in nodes:
        if node.point_count > node.byte_size * POINTS_PER_BYTE:
            raise ValueError(
                f"a node says {node.point_count:,} points in {node.byte_size:,} bytes: it is damaged; copy it again"
            )
    return sorted(nodes, key=lambda node: int(node.offset))


def group_nodes(nodes: list[Any], most: int) -> list[list[Any]]:
    """Nodes divided by place: those that stand on one square of the octree, with at most so many points where it can
    be divided. The wider nodes above the squares come first, in groups of their own.
    """
    totals: dict[tuple[int, int, int], int] = {}
    for node in nodes:
        for up in range(node.key.level + 1):
            square = (node.key.level - up, node.key.x >> up, node.key.y >> up)
            totals[square] = totals.get(square, 0) + node.point_count
    whole, waiting = set(), [(0, 0, 0)]
    while waiting:
        level, x, y = square = waiting.pop()
        inside = [
            (level + 1, 2 * x + a, 2 * y + b)
            for a in (0, 1)
            for b in (0, 1)
            if (level + 1, 2 * x + a, 2 * y + b) in totals
        ]
        if totals.get(square, 0) <= most or not inside:
            whole.add(square)
        else:
            waiting += inside
    columns: dict[tuple[int, int, int], list[Any]] = {}
    above: list[list[Any]] = []
    held = most
    for node in nodes:
        key = node.key
        on = next(
            (
                square
                for up in range(key.level + 1)
                if (square := (key.level - up, key.x >> up, key.y >> up)) in whole
            ),
            None,
        )
        if on is not None:
            columns.setdefault(on, []).append(node)
            continue
        if held + node.point_count > most:
            above.append([])
            held = 0
        above[-1].append(node)
        held += node.point_count
    return above + [columns[square] for square in sorted(columns)]


def decode_nodes(
    path: Path,
    classes: list[int] | None,
    bounds: list[float] | None,
    spacing: float | None,
    most: int,
    group: int | None,
) -> Iterator[NDArray[np.float64]]:
    """Coordinates (N, 3) of a COPC file: of the nodes that a box meets, down to a level; some nodes at a time.

    bounds, spacing: see `find_nodes`; points of the nodes beyond the box are among them
    most, group: one of `group_nodes`; all of them where it is None
    """
    with laspy.CopcReader.open(str(path), decompression_selection=FIELDS) as reader:
        nodes = find_nodes(reader, bounds, spacing)
        for some in nodes_at_once(nodes if group is None else group_nodes(nodes, most)[group]):
            yield decode_some(reader, some, classes)


def decode_some(reader: Any, some: list[Any], classes: list[int] | None) -> NDArray[np.float64]:
    """Coordinates (N, 3) of nodes that are decoded in parallel."""
    header, count = reader.header, sum(node.point_count for node in some)
    limit_time(count)
    packed = b"".join(read_node(reader.source, node) for node in some)
    buffer = np.zeros(count * header.point_format.size, dtype=np.uint8)
    table = [(int(node.point_count), int(node.byte_size)) for node in some]
    lazrs.decompress_points_with_chunk_table(
        packed, reader.laszip_vlr.record_data, buffer, table, FIELDS.to_lazrs()
    )
    points = laspy.PackedPointRecord.from_buffer(buffer, header.point_format)
    raw = points.array
    if classes is not None:
        raw = raw[np.isin(np.arange(256), classes)[np.asarray(points.classification)]]
    return coordinates(raw, header)


def send_sample(
    out: BinaryIO, path: Path, classes: list[int] | None, points: int, bounds: list[float] | None,
    spacing: float | None,
) -> None:  # fmt: skip
    """Send a sample of a COPC file: how much of it the first pieces are, then the pieces, see `sample_nodes`."""
    with laspy.CopcReader.open(str(path), decompression_selection=FIELDS) as reader:
        nodes = find_nodes(reader, bounds, spacing)
        share, coarse, dense = sample_nodes(nodes, shares_inside(reader.copc_info, nodes, bounds), points)
        first = list(nodes_at_once(coarse))
        send(out, HEADER, json.dumps({"share": share, "coarse": len(first)}).encode())
        for some in (*first, *nodes_at_once(dense)):
            send(out, POINTS, decode_some(reader, some, classes).data)


def shares_inside(info: Any, nodes: list[Any], bounds: list[float] | None) -> NDArray[np.float64]:
    """Of each node the share of its square that is in a box: about that share of its points are."""
    if bounds is None:
        return np.ones(len(nodes))
    corner = np.asarray(info.center[:2]) - info.halfsize
    edges = 2.0 * info.halfsize / 2.0 ** np.array([node.key.level for node in nodes])
    low = corner + edges[:, None] * np.array([(node.key.x, node.key.y) for node in nodes]).reshape(-1, 2)
    overlap = np.minimum(low + edges[:, None], bounds[2:]) - np.maximum(low, bounds[:2])
    return np.asarray((np.clip(overlap, 0.0, None) / edges[:, None]).prod(axis=1))


def sample_nodes(
    nodes: list[Any], inside: NDArray[np.float64], points: int
) -> tuple[float, list[Any], list[Any]]:
    """Nodes with about so many points of a box: the share of its points in the first list, and two lists.

    The first has the coarse levels, whose points are spread as all of them are. The second has a few of the finest
    nodes from all over the box: there most points of a place are, by whose scatter the noise is known.
    """
    counts = np.array([node.point_count for node in nodes]) * inside
    levels = np.array([node.key.level for node in nodes])
    reached = np.array([counts[levels <= level].sum() for level in range(int(levels.max(initial=0)) + 1)])
    last = min(int(np.searchsorted(reached, points / 2)), len(reached) - 1)
    coarse = [node for node, level in zip(nodes, levels, strict=True) if level <= last]
    share = float(reached[last] / reached[-1]) if reached[-1] > 0.0 else 1.0
    return (
        share,
        coarse,
        finest_nodes([node for k, node in enumerate(nodes) if inside[k] > 0.0], last, points / 2),
    )


def finest_nodes(nodes: list[Any], last: int, points: float) -> list[Any]:
    """Some nodes below a level with none below them, from all over, with about so many points."""
    finer = {(n.key.level, n.key.x, n.key.y, n.key.z): n for n in nodes if n.key.level > last}
    parents = {(level - 1, x >> 1, y >> 1, z >> 1) for level, x, y, z in finer}
    ends = [node for key, node in finer.items() if key not in parents]
    if not ends:
        return []
    number = int(
        np.clip(points / np.mean([node.point_count for node in ends]), 1, min(DENSE_NODES, len(ends)))
    )
    return [ends[int(k)] for k in (np.arange(number) + 0.5) * len(ends) / number]


def nodes_at_once(nodes: list[Any]) -> Iterator[list[Any]]:
    """The nodes in lists of about a piece of points each: nodes of one list are decoded in parallel."""
    some: list[Any] = []
    for node in nodes:
        if some and sum(other.point_count for other in some) + node.point_count > PIECE:
            yield some
            some = []
        some.append(node)
    if some:
        yield some


def read_node(source: Any, node: Any) -> bytes:
    """Its compressed points."""
    source.seek(node.offset)
    packed = bytes(source.read(node.byte_size))
    if len(packed) < node.byte_size:
        raise ValueError("it ends within a node: it was cut off; copy it again")
    return packed


def add_classes(found: dict[int, int], kinds: NDArray[np.uint8]) -> None:
    for number, count in enumerate(np.bincount(kinds)):
        if count:
            found[number] = found.get(number, 0) + int(count)


def without_points(classes: list[int], found: dict[int, int]) -> str:
    asked = ", ".join(map(str, classes))
    there = ", ".join(f"{number} ({count:,} points)" for number, count in sorted(found.items()))
    return f"the file has no points of class {asked}; its classes are {there or 'none'}: choose with --class"


if __name__ == "__main__":
    main()
