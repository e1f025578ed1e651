"""Track files, plain or compressed."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZIP_MAGIC: Final = b"PK\x03\x04"

#: Suffixes of the compression, not of the format.
_PACKING: Final = frozenset({".gz", ".zip"})


class UnreadableTrack(ValueError):
    """A file is damaged or not of the format it seems to have; the message says where."""


class Source:
    """A file that can be opened any number of times; compression is detected by content.

    Of a zip archive (or KMZ) only the track file is read: the first KML, else the largest member.
    """

    HEAD_BYTES: Final = 64 * 1024

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """The file's name without the suffixes of its format and its compression."""
        path = Path(self.path.name)
        while path.suffix.lower() in _PACKING:
            path = path.with_suffix("")
        return path.stem or "track"

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Yield a stream of the uncompressed bytes.

        Raises OSError, and UnreadableTrack for damage that shows only while reading.
        """
        with self.path.open("rb") as raw:
            magic = raw.read(4)
            raw.seek(0)
            try:
                if magic.startswith(_GZIP_MAGIC):
                    with gzip.open(raw) as unzipped:
                        yield cast("IO[bytes]", io.BufferedReader(unzipped, 256 * 1024))
                elif magic == _ZIP_MAGIC:
                    with zipfile.ZipFile(raw) as archive, archive.open(_member(archive)) as member:
                        yield member
                else:
                    yield raw
            except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
                raise UnreadableTrack(f"{self.path}: {error}") from error
            except (RuntimeError, NotImplementedError) as error:
                # zipfile raises these for archives that are encrypted or packed unusually.
                raise UnreadableTrack(f"{self.path}: {error}") from error

    def head(self) -> bytes:
        """Return the first bytes, for detection."""
        with self.open() as stream:
            return stream.read(self.HEAD_BYTES)


def _member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = [member for member in archive.infolist() if not member.is_dir()]
    if not members:
        raise zipfile.BadZipFile("the archive is empty")
    documents = [member for member in members if member.filename.lower().endswith(".kml")]
    return documents[0] if documents else max(members, key=lambda member: member.file_size)
