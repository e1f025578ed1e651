"""Track files, plain or compressed."""

from __future__ import annotations

import codecs
import gzip
import io
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GZIP_MAGIC: Final = b"\x1f\x8b"
ZIP_MAGIC: Final = b"PK\x03\x04"
_READ_BYTES: Final = 64 * 1024
#: Bytes by which an encoding is told.
_BEGIN_BYTES: Final = 8

#: Suffixes of the compression, not of the format.
_PACKING: Final = frozenset({".gz", ".zip"})


class UnreadableTrack(ValueError):
    """A file is damaged or not of the format it seems to have; the message says where."""


@contextmanager
def damage_told(name: object) -> Iterator[None]:
    """Raise UnreadableTrack, which names the file, for damage of what is packed."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise UnreadableTrack(f"{name}: {error}") from error
    except (RuntimeError, NotImplementedError) as error:
        # zipfile raises these for archives that are encrypted or packed unusually.
        raise UnreadableTrack(f"{name}: {error}") from error


class Source:
    """A file that can be opened any number of times; compression is detected by content.

    Of a KMZ, and of an archive of one file, that file is read (`one_track_of`). Other archives have
    several sources (waylog.replay.readers.archives).
    """

    HEAD_BYTES: Final = 64 * 1024

    def __init__(
        self,
        path: Path,
        *,
        shown: str | None = None,
        opener: Callable[[], IO[bytes]] | None = None,
        count: Callable[[int], object] | None = None,
    ) -> None:
        """`opener` opens a part of the file, which messages name as `shown`.

        `count` is called with the numbers of unpacked bytes as they are read.
        """
        self.path = path
        self._shown = str(path) if shown is None else shown
        self._opener = opener
        self._count = count
        #: The name of the archive or folder of which it is a part; None: of none.
        self.collection: str | None = None
        self.file_name = path.name

    def __str__(self) -> str:
        return self._shown

    @property
    def name(self) -> str:
        """The name of its collection, else the file's without the suffixes of its format and its
        compression.
        """
        if self.collection:
            return self.collection
        path = Path(self.file_name)
        while path.suffix.lower() in _PACKING:
            path = path.with_suffix("")
        return path.stem or "track"

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Yield a stream of the uncompressed bytes; text in UTF-16 or UTF-32 becomes UTF-8.

        Raises OSError, and UnreadableTrack for damage that shows only while reading.
        """
        with self._open_raw() as stream:
            encoding = _wide_encoding(stream.read(_BEGIN_BYTES))
        with self._open_raw() as stream:
            if encoding is None:
                yield stream
            else:
                yield cast("IO[bytes]", io.BufferedReader(_Transcoded(stream, encoding)))

    @contextmanager
    def _open_raw(self) -> Iterator[IO[bytes]]:
        with self._unpacked() as stream:
            if self._count is None:
                yield stream
            else:
                counted = _Counted(stream, self._count)
                yield cast("IO[bytes]", io.BufferedReader(counted, _READ_BYTES))

    @contextmanager
    def _unpacked(self) -> Iterator[IO[bytes]]:
        with self._opened() as raw, damage_told(self):
            magic = raw.read(4)
            raw.seek(0)
            if magic.startswith(_GZIP_MAGIC):
                with gzip.open(raw) as unzipped:
                    yield cast("IO[bytes]", io.BufferedReader(unzipped, 256 * 1024))
            elif magic == ZIP_MAGIC:
                with zipfile.ZipFile(raw) as archive, archive.open(_member(archive)) as member:
                    yield member
            else:
                yield raw

    def _opened(self) -> IO[bytes]:
        return self.path.open("rb") if self._opener is None else self._opener()

    def is_transcoded(self) -> bool:
        """Tell whether the file is in UTF-16 or UTF-32, so that `open` yields it as UTF-8."""
        with self._open_raw() as stream:
            return _wide_encoding(stream.read(_BEGIN_BYTES)) is not None

    def head(self) -> bytes:
        """Return the first bytes, for detection."""
        with self.open() as stream:
            return stream.read(self.HEAD_BYTES)


class _Counted(io.RawIOBase):
    """A stream whose bytes are counted as they are read."""

    def __init__(self, stream: IO[bytes], count: Callable[[int], object]) -> None:
        self._stream = stream
        self._count_read = count

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Tell whether the stream can go back."""
        return self._stream.seekable()

    def seek(self, offset: int, whence: int = 0) -> int:
        """See io.IOBase."""
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """See io.IOBase."""
        return self._stream.tell()

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer; return 0 at the end."""
        read = self._stream.read(len(buffer))
        buffer[: len(read)] = read
        self._count_read(len(read))
        return len(read)


class _Transcoded(io.RawIOBase):
    """Text of another encoding, read as UTF-8 without a byte order mark."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._rest = b""
        self._place = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True; it goes back to the beginning only."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go back to the beginning; another place raises io.UnsupportedOperation."""
        if whence == 1 and not offset:
            return self._place
        if whence or offset:
            raise io.UnsupportedOperation("seek")
        self._stream.seek(0)
        self._decoder.reset()
        self._rest = b""
        self._place = 0
        return 0

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with text in UTF-8; return 0 at the end."""
        while not self._rest:
            read = self._stream.read(_READ_BYTES)
            text = self._decoder.decode(read, final=not read)
            self._rest = text.removeprefix("\ufeff").encode("utf-8", "replace")
            if not read:
                break
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        self._place += size
        return size


def _wide_encoding(begin: bytes) -> str | None:
    """Return the encoding of text with 16 or 32 bits a unit; None for all other files."""
    if begin.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # Without a mark: every text here begins with characters of ASCII.
    if len(begin) == _BEGIN_BYTES and not any(begin[1::2]) and all(begin[::2]):
        return "utf-16-le"
    if len(begin) == _BEGIN_BYTES and not any(begin[::2]) and all(begin[1::2]):
        return "utf-16-be"
    return None


def one_track_of(archive: zipfile.ZipFile) -> zipfile.ZipInfo | None:
    """Return the file of an archive that is one track: the KML of a KMZ, or the only file."""
    members = [member for member in archive.infolist() if not member.is_dir()]
    documents = [
        member
        for member in members
        if "/" not in member.filename and member.filename.lower().endswith(".kml")
    ]
    if documents:
        return documents[0]
    return members[0] if len(members) == 1 else None


def _member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    member = one_track_of(archive)
    if member is None:
        raise zipfile.BadZipFile("the archive has no track, or several")
    return member
