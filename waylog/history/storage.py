"""Storage of Parquet files: a local folder, S3, HDFS, or any file system that pyarrow supports."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from waylog.config import ConfigError

#: The file that a writer locks; only in local folders.
LOCK: Final = "_lock"


class Storage:
    """A folder of files, named by paths relative to it. Picklable, for tasks in other processes.

    Locally a rename is atomic, and a written file survives a power cut. Elsewhere (S3) a rename is
    a copy under the final name, which appears whole or not at all, followed by a deletion.
    """

    def __init__(self, url: str) -> None:
        """Raises ConfigError for a URL that cannot be opened."""
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
        except (pa.ArrowInvalid, OSError) as error:
            raise ConfigError(f"{url}: cannot be opened: {error}") from error
        self._base = self._base.rstrip("/")
        self.local = isinstance(self._files, fs.LocalFileSystem)

    def __reduce__(self) -> tuple[type[Storage], tuple[str]]:
        return Storage, (self.path if self.local else self.url,)

    @property
    def path(self) -> str:
        """The folder, as the file system names it."""
        return str(self._base)

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
        """Create the folder if it is missing; raises ConfigError if that fails."""
        try:
            self._files.create_dir(self._base, recursive=True)
        except OSError as error:
            # Arrow's text for this error would repeat the path and the error number.
            reason = "a file is in the way" if isinstance(error, FileExistsError) else str(error)
            raise ConfigError(f"{self.url}: no folder can be made there: {reason}") from error

    def list_files(self, folder: str = "") -> list[str]:
        """Return all files below `folder`, except in subfolders that start with `_` or `.`."""
        return list(self.list_sizes(folder))

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

    def write_parquet(self, name: str, table: pa.Table, **options: Any) -> None:
        """Write a whole file; a local one survives a power cut."""
        path = f"{self._base}/{name}"
        with self._files.open_output_stream(path) as stream:
            pq.write_table(table, stream, **options)
        if self.local:
            _flush(path)

    def read_parquet(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a whole file, or some of its columns."""
        # A stream, because pyarrow would add columns for a `date=` in a path.
        with self._files.open_input_file(f"{self._base}/{name}") as stream:
            return pq.ParquetFile(stream).read(
                columns=None if columns is None else list(columns), use_threads=False
            )

    def open_input(self, name: str) -> Any:
        """Open a file for reading, with random access."""
        return self._files.open_input_file(f"{self._base}/{name}")

    def open_output(self, name: str) -> Any:
        """Open a stream that writes a file. Not durable before `flush`."""
        return self._files.open_output_stream(f"{self._base}/{name}")

    def flush(self, name: str) -> None:
        """Make a written file survive a power cut."""
        if self.local:
            _flush(f"{self._base}/{name}")

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        info = self._files.get_file_info(f"{self._base}/{name}")
        return bool(info.type == fs.FileType.File)

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

    def replace_bytes(self, name: str, content: bytes) -> None:
        """Replace a small file; readers see either the old or the new content, whole."""
        aside = f"{name}.{uuid.uuid4().hex}"
        with self.open_output(aside) as stream:
            stream.write(content)
        self.flush(aside)
        self.rename(aside, name)
        self.flush_folder(name.rpartition("/")[0])

    def create_folder(self, name: str) -> None:
        """Create a folder, if it is missing."""
        self._files.create_dir(f"{self._base}/{name}", recursive=True)

    def rename(self, source: str, target: str) -> None:
        """Rename a file; replaces a file that has the new name."""
        self._files.move(f"{self._base}/{source}", f"{self._base}/{target}")

    def copy(self, source: str, target: str) -> None:
        """Copy a file; readers of `target` see the old or the new one, whole."""
        aside = f"{target}.{uuid.uuid4().hex}"
        self._files.copy_file(f"{self._base}/{source}", f"{self._base}/{aside}")
        self.rename(aside, target)

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        try:
            self._files.delete_file(f"{self._base}/{name}")
        except FileNotFoundError:
            return

    def delete_folder(self, name: str) -> None:
        """Delete everything in a folder, if it exists."""
        self._files.delete_dir_contents(f"{self._base}/{name}", missing_dir_ok=True)

    def delete_empty_folder(self, name: str) -> None:
        """Delete a folder if nothing is in it; only a local one: elsewhere none is seen."""
        if self.local:
            with suppress(OSError):
                Path(self._base, name).rmdir()

    def flush_folder(self, name: str) -> None:
        """Make renames in a folder survive a power cut."""
        if self.local:
            _flush(f"{self._base}/{name}")

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
            raise ConfigError(f"{self.url}: another process is writing this history") from None
        return file


def _flush(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
