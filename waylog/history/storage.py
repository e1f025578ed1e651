"""Storage of Parquet files: a local folder, S3, HDFS, or any file system that pyarrow supports."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import IO, Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from waylog.config import ConfigError
from waylog.history.storage_errors import is_lasting, shown_url, unavailable

Method = TypeVar("Method", bound=Callable[..., Any])

#: The file that a writer locks; only in local folders.
LOCK: Final = "_lock"


def _named(method: Method) -> Method:
    """Make an error of the file system one that names the storage; a missing file stays one."""

    @wraps(method)
    def named(self: Storage, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise unavailable(self.place, error) from error

    return cast(Method, named)


class Storage:
    """A folder of files, named by paths relative to it. Picklable, for tasks in other processes.

    Locally a rename is atomic, and a written file survives a power cut. Elsewhere (S3) a rename is
    a copy under the final name, which appears whole or not at all, followed by a deletion.

    Methods raise StorageUnavailable, an OSError, when the folder or server cannot be used now.
    """

    def __init__(self, url: str) -> None:
        """Raises ConfigError for a URL that is none, StorageUnavailable for one that is away."""
        self.url = url
        try:
            if url.startswith("webhdfs://"):
                from waylog.history.webhdfs import WebHdfs

                address = urlsplit(url)
                self._files = fs.PyFileSystem(WebHdfs(address.netloc))
                self._base = address.path
            elif url.startswith("hdfs://"):
                raise ConfigError(
                    f"{url}: say webhdfs://HOST:PORT/PATH, with the port of the NameNode's HTTP "
                    "server (9870 unless set); Spark understands it as well"
                )
            elif "://" in url:
                self._files, self._base = fs.FileSystem.from_uri(
                    # Spark's scheme for S3.
                    url.replace("s3a://", "s3://", 1)
                )
            else:
                self._files, self._base = fs.LocalFileSystem(), str(Path(url).absolute())
        except pa.ArrowException as error:
            raise ConfigError(f"{shown_url(url)}: cannot be opened: {error}") from error
        except OSError as error:
            raise unavailable(url, error) from error
        self._base = self._base.rstrip("/")
        self.local = isinstance(self._files, fs.LocalFileSystem)

    def __reduce__(self) -> tuple[type[Storage], tuple[str]]:
        return Storage, (self.path if self.local else self.url,)

    @property
    def path(self) -> str:
        """The folder, as the file system names it."""
        return str(self._base)

    @property
    def place(self) -> str:
        """The folder or URL for people, without secrets."""
        return self.path if self.local and "://" in self.url else shown_url(self.url)

    @property
    def file_system(self) -> fs.FileSystem:
        """The file system that has the folder `path`."""
        return self._files

    @property
    def spark_url(self) -> str:
        """The folder, as Spark names it."""
        if self.local:
            return Path(self._base).as_uri()
        return self.url.replace("s3://", "s3a://", 1)

    def open_folder(self) -> None:
        """Create the folder if it is missing.

        Raises ConfigError if that cannot work until somebody changes something here,
        StorageUnavailable if it may work later.
        """
        try:
            self._files.create_dir(self._base, recursive=True)
        except OSError as error:
            told = unavailable(self.place, error)
            if not (self.local and is_lasting(error)):
                raise told from error
            in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
            reason = "a file is in the way" if in_the_way else told.strerror
            raise ConfigError(f"{self.place}: no folder can be made there: {reason}") from error

    @_named
    def is_there(self, folder: str = "") -> bool:
        """Return whether there is the folder, or one in it; on S3, whether something is in it."""
        path = f"{self._base}/{folder}".rstrip("/")
        return bool(self._files.get_file_info(path).type == fs.FileType.Directory)

    def list_files(self, folder: str = "") -> list[str]:
        """Return all files below `folder`, except in subfolders that start with `_` or `.`."""
        return list(self.list_sizes(folder))

    @_named
    def list_sizes(self, folder: str = "") -> dict[str, int]:
        """Return the files that `list_files` lists, with their sizes in bytes."""
        return dict(self._walk(f"{self._base}/{folder}".rstrip("/")))

    def _walk(self, folder: str) -> Iterator[tuple[str, int]]:
        selector = fs.FileSelector(folder, allow_not_found=True)
        for entry in self._files.get_file_info(selector):
            if entry.type == fs.FileType.Directory:
                if not entry.base_name.startswith(("_", ".")):
                    yield from self._walk(entry.path)
            else:
                yield entry.path.removeprefix(f"{self._base}/"), entry.size or 0

    @_named
    def write_parquet(self, name: str, table: pa.Table, **options: Any) -> None:
        """Write a whole file; a local one survives a power cut."""
        path = f"{self._base}/{name}"
        with self._files.open_output_stream(path) as stream:
            pq.write_table(table, stream, **options)
        if self.local:
            _flush(path)

    @_named
    def read_parquet(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a whole file, or some of its columns."""
        # A stream, because pyarrow would add columns for a `date=` in a path.
        with self._files.open_input_file(f"{self._base}/{name}") as stream:
            return pq.ParquetFile(stream).read(
                columns=None if columns is None else list(columns), use_threads=False
            )

    @_named
    def open_input(self, name: str) -> Any:
        """Open a file for reading, with random access."""
        return self._files.open_input_file(f"{self._base}/{name}")

    @_named
    def open_output(self, name: str) -> Any:
        """Open a stream that writes a file. Not durable before `flush`."""
        return self._files.open_output_stream(f"{self._base}/{name}")

    @_named
    def flush(self, name: str) -> None:
        """Make a written file survive a power cut."""
        if self.local:
            _flush(f"{self._base}/{name}")

    @_named
    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        info = self._files.get_file_info(f"{self._base}/{name}")
        return bool(info.type == fs.FileType.File)

    @_named
    def changed_s(self, names: Sequence[str]) -> float:
        """Return the latest modification time of some files, s since 1970; -inf for none."""
        infos = self._files.get_file_info([f"{self._base}/{name}" for name in names])
        return max(
            (info.mtime.timestamp() for info in infos if info.mtime is not None),
            default=float("-inf"),
        )

    def read_bytes(self, name: str) -> bytes | None:
        """Read a whole small file; returns None if it does not exist."""
        try:
            with self.open_input(name) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    @_named
    def replace_bytes(self, name: str, content: bytes) -> None:
        """Replace a small file; readers see either the old or the new content, whole."""
        aside = f"{name}.{uuid.uuid4().hex}"
        with self.open_output(aside) as stream:
            stream.write(content)
        self.flush(aside)
        self.rename(aside, name)
        self.flush_folder(name.rpartition("/")[0])

    @_named
    def create_folder(self, name: str) -> None:
        """Create a folder, if it is missing."""
        self._files.create_dir(f"{self._base}/{name}", recursive=True)

    @_named
    def rename(self, source: str, target: str) -> None:
        """Rename a file; replaces a file that has the new name."""
        self._files.move(f"{self._base}/{source}", f"{self._base}/{target}")

    @_named
    def copy(self, source: str, target: str) -> None:
        """Copy a file; readers of `target` see the old or the new one, whole."""
        aside = f"{target}.{uuid.uuid4().hex}"
        self._files.copy_file(f"{self._base}/{source}", f"{self._base}/{aside}")
        self.rename(aside, target)

    @_named
    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        try:
            self._files.delete_file(f"{self._base}/{name}")
        except FileNotFoundError:
            return

    @_named
    def delete_folder(self, name: str) -> None:
        """Delete everything in a folder, if it exists."""
        self._files.delete_dir_contents(f"{self._base}/{name}", missing_dir_ok=True)

    def delete_empty_folder(self, name: str) -> None:
        """Delete a folder if nothing is in it; only a local one: elsewhere none is seen."""
        if self.local:
            with suppress(OSError):
                Path(self._base, name).rmdir()

    @_named
    def flush_folder(self, name: str) -> None:
        """Make renames in a folder survive a power cut."""
        if self.local:
            _flush(f"{self._base}/{name}")

    @_named
    def lock(self, name: str = LOCK) -> IO[str] | None:
        """Lock the folder as its only writer until the returned file is closed.

        Writers with different values of `name` do not exclude each other.

        Raises ConfigError if another process holds the lock. Returns None, without a lock, for a
        folder that is not local.
        """
        if not self.local:
            return None
        file = Path(self._base, name).open("a", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise ConfigError(f"{self.place}: another process is writing this history") from None
        return file


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
