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
from pathlib import Path
from typing import Any, BinaryIO

import laspy
import numpy as np
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
FIELDS = (
    laspy.DecompressionSelection.XY_RETURNS_CHANNEL
    | laspy.DecompressionSelection.Z
    | laspy.DecompressionSelection.CLASSIFICATION
)
"""The layers of a LAZ file (point formats 6 to 10) that a map needs: half of the decoding."""


class NoneOfClass(ValueError):
    """No point has the classes asked for: which there are."""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    for line in sys.stdin:
        request = json.loads(line)
        path = Path(request["path"])
        limit_memory(path)
        try:
            if request["do"] == "open":
                send(out, HEADER, json.dumps(read_header(path)).encode())
            else:
                for xyz in decode_points(path, request["stride"], request["classes"]):
                    send(out, POINTS, xyz.data)
            send(out, END, json.dumps({"largest_mb": largest_mb()}).encode())
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


def open_las(path: Path) -> laspy.LasReader:
    """The reader at the first point; ValueError where the header can't be true."""
    limit_time()
    reader = laspy.open(path, decompression_selection=FIELDS)
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


def read_header(path: Path) -> dict[str, Any]:
    """The number of points, how many of each class in a few places, and the records that name the coordinates."""
    with open_las(path) as reader:
        header = reader.header
        count = int(header.point_count)
        size, starts = AT_EACH, range(0, count, max(count // PLACES, 1))
        if count <= PIECE:
            size, starts = count, range(min(count, 1))
        classes: dict[int, int] = {}
        for start in starts:
            limit_time(PIECE)
            reader.seek(start)
            add_classes(classes, np.asarray(reader.read_points(min(size, count - start)).classification))
        records = [
            (int(record.record_id), base64.b64encode(bytes(record.record_data_bytes())).decode())
            for record in (*header.vlrs, *(getattr(header, "evlrs", None) or ()))
            if record.user_id == "LASF_Projection"
        ]
    return {"count": count, "classes": classes, "records": records}


def decode_points(path: Path, stride: int, classes: list[int] | None) -> Iterator[NDArray[np.float64]]:
    """Coordinates (N, 3) of the points of some classes (None: of all), piece by piece, of every `stride` the first."""
    found: dict[int, int] = {}
    used = 0
    with open_las(path) as reader:
        header = reader.header
        count = int(header.point_count)
        size = PIECE if stride == 1 else CHUNK
        wanted = None if classes is None else np.isin(np.arange(256), classes)
        for start in range(0, count, size * stride):
            limit_time(min(size, count - start))
            if stride > 1:
                reader.seek(start)
            points = reader.read_points(min(size, count - start))
            if len(points) < min(size, count - start):
                ends = start + len(points)
                raise ValueError(f"it ends after {ends:,} of {count:,} points: it was cut off; copy it again")
            raw = points.array
            if wanted is not None:
                kinds = np.asarray(points.classification)
                add_classes(found, kinds)
                raw = raw if wanted[kinds].all() else raw[wanted[kinds]]
            used += len(raw)
            xyz = np.empty((len(raw), 3))
            for axis, name in enumerate("XYZ"):
                np.multiply(raw[name], header.scales[axis], out=xyz[:, axis])
                xyz[:, axis] += header.offsets[axis]
            yield xyz
    if classes is not None and not used and stride == 1:
        raise NoneOfClass(without_points(classes, found))


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
