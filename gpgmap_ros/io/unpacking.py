"""Recordings that are compressed as a whole, by rosbag2 or by hand: unpacked into a file, since readers must seek."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from gpgmap_ros.io.bags import BagError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd  # comes with rosbags, which reads what is unpacked here

PACKED = (".zstd", ".zst")
"""Endings that rosbag2 and zstd give to a file that is compressed as a whole."""
PIECE_BYTES = 1 << 22


class Unpacked:
    """path: the packed file; file: what was in it, there until `close`; damage: why it ends early, if it does.

    The file is beside the packed one, or in the folder for temporary files where nothing may be written beside.
    BagError where it can't be unpacked.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.damage = path, ""
        self._folder = _folder_for(path)
        self.file = Path(self._folder.name) / path.stem
        try:
            with path.open("rb") as packed, self.file.open("wb") as file:
                for piece in _pieces(packed):
                    file.write(piece)
        except PermissionError:
            self.close()
            raise BagError(f"{path}: may not be read: check its permissions") from None
        except (zstd.ZstdError, EOFError) as error:
            self.damage = " ".join(str(error).split()).rstrip(".")
        except OSError as error:
            self.close()
            raise BagError(
                f"{path}: cannot be unpacked into {self.file.parent.parent}: {error.strerror}; unpack it where there is"
                " room (`zstd -d`)"
            ) from error

    def close(self) -> None:
        self._folder.cleanup()


def _folder_for(path: Path) -> TemporaryDirectory[str]:
    try:
        return TemporaryDirectory(dir=path.parent, prefix=".unpacked_")
    except OSError:
        return TemporaryDirectory(prefix="gpgmap_unpacked_")


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    """Pieces of at most PIECE_BYTES, up to where the file ends or is damaged: that raises, after what is good."""
    unpack, begun = zstd.ZstdDecompressor(), False
    data = file.read(PIECE_BYTES)
    while data or not unpack.needs_input:
        yield unpack.decompress(data, PIECE_BYTES)
        begun = not unpack.eof
        if unpack.eof:  # another frame may follow
            data, unpack = unpack.unused_data or file.read(PIECE_BYTES), zstd.ZstdDecompressor()
        else:
            data = file.read(PIECE_BYTES) if unpack.needs_input else b""
    if begun:
        raise EOFError("its compressed data end early")
