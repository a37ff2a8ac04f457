"""The process that decodes LAS and LAZ files, seen from the one that uses the points.

A damaged file can make the native decoder abort, or keep it busy: there that ends a process which is started again for
the next file, and here it is an error message. One process serves all files, one after the other.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.interpreter import module_command
from gpgmap_ros.io.points.source import LevelSample

NONE, FAILURE, END = b"N", b"F", b"E"
FRAME_BYTES = 9
GROUP_POINTS = 4_000_000
"""Of a COPC file that are read as one part of it."""


class DecoderFailed(ValueError):
    """What is wrong with the file, without its name."""


class NoneOfClass(ValueError):
    """No point has the classes asked for: which there are."""


class LasDecoder:
    """Starts the process with the first request.

    largest_mb: the most memory it has held; processor_seconds: of all requests that it has answered to their end
    """

    def __init__(self) -> None:
        self.largest_mb = 0.0
        self.processor_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._lock = threading.Lock()

    def describe(
        self, path: Path, bounds: tuple[float, ...] | None = None, spacing: float | None = None
    ) -> dict[str, Any]:
        """See `las_decoding.read_header`. DecoderFailed where the file can't be read."""
        window = {"bounds": bounds, "spacing": spacing, "most": GROUP_POINTS}
        (content,) = self._answers({"do": "open", "path": str(path.resolve()), "window": window})
        return dict(json.loads(content))

    def points(
        self, path: Path, classes: tuple[int, ...] | None, **places: int | None
    ) -> Iterator[NDArray[np.float64]]:
        """See `las_decoding.decode_points`; places: those of `las_decoding.Places` that are not the default.

        DecoderFailed where the file turns out to be damaged.
        """
        request = {"do": "read", "path": str(path.resolve()), "classes": classes, "places": places}
        for content in self._answers(request):
            yield np.frombuffer(content, dtype=np.float64).reshape(-1, 3)

    def nodes(
        self,
        path: Path,
        classes: tuple[int, ...] | None,
        bounds: tuple[float, ...] | None,
        spacing: float | None,
        group: int | None = None,
    ) -> Iterator[NDArray[np.float64]]:
        """See `las_decoding.decode_nodes`. DecoderFailed where the file turns out to be damaged."""
        window = {"bounds": bounds, "spacing": spacing, "most": GROUP_POINTS, "group": group}
        request = {"do": "read", "path": str(path.resolve()), "classes": classes, "window": window}
        for content in self._answers(request):
            yield np.frombuffer(content, dtype=np.float64).reshape(-1, 3)

    def sample(
        self,
        path: Path,
        classes: tuple[int, ...] | None,
        bounds: tuple[float, ...] | None,
        spacing: float | None,
        points: int,
    ) -> LevelSample:
        """About so many points of a COPC file. DecoderFailed where it turns out to be damaged."""
        request = {
            "do": "sample", "path": str(path.resolve()), "classes": classes, "points": points,
            "window": {"bounds": bounds, "spacing": spacing},
        }  # fmt: skip
        head, *pieces = self._answers(request)
        described = json.loads(head)
        arrays = [np.frombuffer(piece, dtype=np.float64).reshape(-1, 3) for piece in pieces]
        return LevelSample(described["share"], arrays[: described["coarse"]], arrays[described["coarse"] :])

    def close(self) -> None:
        """End the process; the next request starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, self._said):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()

    def _answers(self, request: dict[str, Any]) -> Iterator[bytearray]:
        with self._lock:
            finished = False
            try:
                process = self._running()
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(json.dumps(request).encode() + b"\n")
                    process.stdin.flush()
                while True:
                    kind, content = self._frame(process)
                    if kind == END:
                        spent = json.loads(content)
                        self.largest_mb = max(self.largest_mb, spent["largest_mb"])
                        self.processor_seconds += spent["processor_seconds"]
                        finished = True
                        return
                    if kind in (NONE, FAILURE):
                        finished = True
                        failure = NoneOfClass if kind == NONE else DecoderFailed
                        raise failure(content.decode(errors="replace"))
                    yield content
            finally:
                if not finished:  # it died, or nobody wants the rest
                    self.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._said = TemporaryFile()  # noqa: SIM115 (closed with the process)
            self._process = subprocess.Popen(
                module_command("gpgmap_ros.io.points.las_decoding"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
            )
        return self._process

    def _frame(self, process: subprocess.Popen[bytes]) -> tuple[bytes, bytearray]:
        assert process.stdout is not None
        head = process.stdout.read(FRAME_BYTES)
        size = int.from_bytes(head[1:], "little") if len(head) == FRAME_BYTES else -1
        content = bytearray(max(size, 0))
        view, filled = memoryview(content), 0
        while filled < size and (count := process.stdout.readinto(view[filled:])):  # type: ignore[attr-defined]
            filled += count
        if filled != size:
            raise DecoderFailed(self._death(process))
        return head[:1], content

    def _death(self, process: subprocess.Popen[bytes]) -> str:
        code = process.wait()
        if code == -signal.SIGXCPU:
            return "decoding it took far longer than its points can: it is damaged; copy it again"
        if code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            said = self._last_words()
            how = f"ended with code {code}" + (f" ({said})" if said else "")
        return f"its decoder {how}: the file is damaged; copy it again"

    def _last_words(self) -> str:
        if self._said is None:
            return ""
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


decoder = LasDecoder()
atexit.register(decoder.close)
