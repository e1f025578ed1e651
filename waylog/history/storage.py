"""Where Parquet lives: a local folder, S3, HDFS, or what else pyarrow has a file system for."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from waylog.config import ConfigError

#: Locally, whoever writes a folder holds this file.
LOCK: Final = "_lock"


class Storage:
    """A folder of files, named by paths relative to it. Picklable: tasks get a copy.

    Local: a rename is atomic and a written file survives a power cut. Elsewhere (S3) a rename is a
    copy under the final name, which appears whole or not at all, and a deletion.
    """

    def __init__(self, url: str) -> None:
        """Raises ConfigError for a URL that nothing here can open."""
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
                    # Spark's name of the same thing.
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
    def spark_url(self) -> str:
        """The folder, as Spark names it."""
        if self.local:
            return Path(self._base).as_uri()
        return self.url.replace("s3://", "s3a://", 1)

    def open_folder(self) -> None:
        """Create the folder if need be; raises ConfigError when it can not be."""
        try:
            self._files.create_dir(self._base, recursive=True)
        except OSError as error:
            # Arrow's own text repeats the path and the number of the error.
            reason = "a file is in the way" if isinstance(error, FileExistsError) else str(error)
            raise ConfigError(f"{self.url}: no folder can be made there: {reason}") from error

    def list_files(self, folder: str = "") -> list[str]:
        """All files below `folder`, but not those in folders in it starting with `_` or `.`."""
        return list(self.list_sizes(folder))

    def list_sizes(self, folder: str = "") -> dict[str, int]:
        """All files below `folder`, as `list_files` has them, with their sizes in bytes."""
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
        """Write a whole file, durably."""
        path = f"{self._base}/{name}"
        with self._files.open_output_stream(path) as stream:
            pq.write_table(table, stream, **options)
        if self.local:
            _flush(path)

    def read_parquet(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a whole file, or some of its columns."""
        # Opened here: given a path, pyarrow would add columns for `date=` in it.
        with self._files.open_input_file(f"{self._base}/{name}") as stream:
            return pq.ParquetFile(stream).read(
                columns=None if columns is None else list(columns), use_threads=False
            )

    def open_input(self, name: str) -> Any:
        """A file to read from, at any place."""
        return self._files.open_input_file(f"{self._base}/{name}")

    def open_output(self, name: str) -> Any:
        """A stream to write a file to. Not durable before `flush`."""
        return self._files.open_output_stream(f"{self._base}/{name}")

    def flush(self, name: str) -> None:
        """Make a written file survive a power cut."""
        if self.local:
            _flush(f"{self._base}/{name}")

    def exists(self, name: str) -> bool:
        """Tell whether there is such a file."""
        info = self._files.get_file_info(f"{self._base}/{name}")
        return bool(info.type == fs.FileType.File)

    def changed_s(self, names: Sequence[str]) -> float:
        """When the last of some files was written, s since 1970; -inf for none."""
        infos = self._files.get_file_info([f"{self._base}/{name}" for name in names])
        return max(
            (info.mtime.timestamp() for info in infos if info.mtime is not None),
            default=float("-inf"),
        )

    def read_bytes(self, name: str) -> bytes | None:
        """A small file whole; None when it is not there."""
        try:
            with self.open_input(name) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def replace_bytes(self, name: str, content: bytes) -> None:
        """Write a small file so that readers see the old or the new one, whole."""
        aside = f"{name}.{uuid.uuid4().hex}"
        with self.open_output(aside) as stream:
            stream.write(content)
        self.flush(aside)
        self.rename(aside, name)
        self.flush_folder(name.rpartition("/")[0])

    def create_folder(self, name: str) -> None:
        """Create a folder, unless it is there."""
        self._files.create_dir(f"{self._base}/{name}", recursive=True)

    def rename(self, source: str, target: str) -> None:
        """Give a file its final name; replaces what has it."""
        self._files.move(f"{self._base}/{source}", f"{self._base}/{target}")

    def copy(self, source: str, target: str) -> None:
        """Copy a file; readers of `target` see the old or the new one, whole."""
        aside = f"{target}.{uuid.uuid4().hex}"
        self._files.copy_file(f"{self._base}/{source}", f"{self._base}/{aside}")
        self.rename(aside, target)

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        try:
            self._files.delete_file(f"{self._base}/{name}")
        except FileNotFoundError:
            return

    def delete_folder(self, name: str) -> None:
        """Delete a folder and what is in it, if it is there."""
        self._files.delete_dir_contents(f"{self._base}/{name}", missing_dir_ok=True)

    def flush_folder(self, name: str) -> None:
        """Make renames in a folder survive a power cut."""
        if self.local:
            _flush(f"{self._base}/{name}")

    def lock(self, name: str = LOCK) -> IO[str] | None:
        """Hold the folder as its only writer until the returned file is closed.

        `name` tells apart kinds of writers that do not disturb each other.

        Raises ConfigError when another process holds it. Not possible elsewhere than locally.
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
