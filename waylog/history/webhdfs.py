"""HDFS over its REST interface (WebHDFS), as a file system for pyarrow.

pyarrow's own HDFS client needs native libraries of a Hadoop installation; this one needs only the
NameNode's HTTP port. A file is sent whole when it is closed; if a DataNode dies meanwhile, it is
sent again to other DataNodes. A read that a dead DataNode interrupted is repeated.
"""

from __future__ import annotations

import getpass
import http.client
import io
import json
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import IO, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa
from pyarrow import fs

_ATTEMPTS: Final = 8
#: The same for a NameNode that this process has not heard of yet: its address may be wrong.
_FIRST_ATTEMPTS: Final = 3
_FIRST_TIMEOUT_S: Final = 10.0
_WAIT_S: Final = 0.25
_TIMEOUT_S: Final = 30.0
_MISTRUST_S: Final = 600.0

#: The size in bytes up to which an open file is kept in memory; beyond, it is on disk.
_SPOOL_BYTES: Final = 8 << 20
#: The least number of bytes that one read asks for: columns of a small file come in one answer.
_READ_BYTES: Final = 1 << 20

_MISSING: Final = ("FileNotFoundException",)
#: What asking again does not change.
_REFUSED: Final = ("AccessControlException", "SecurityException", "AuthorizationException")

#: The NameNodes that have answered this process.
_answered: Final[set[str]] = set()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect: the caller decides which DataNode to ask."""

    def redirect_request(self, *_: Any) -> None:
        return None


class WebHdfs(fs.FileSystemHandler):  # type: ignore[misc]
    """The file system of one NameNode."""

    def __init__(self, address: str) -> None:
        """`address` is host:port of the NameNode's HTTP server."""
        self._address = address
        self._user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        self._opener = urllib.request.build_opener(_NoRedirect)
        # The DataNodes that did not answer, by transfer address, and the time when to ask again.
        self._mistrusted: dict[str, float] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WebHdfs) and other._address == self._address

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        """Return the name of the file system for messages."""
        return "webhdfs"

    def normalize_path(self, path: str) -> str:
        """Return the path unchanged."""
        return path

    def _url(self, path: str, operation: str, options: dict[str, str]) -> str:
        query = urlencode({"op": operation, "user.name": self._user, **options})
        return f"http://{self._address}/webhdfs/v1/{quote(path.lstrip('/'))}?{query}"

    def _ask(self, method: str, url: str, data: Any = None, size: int = 0) -> bytes | str:
        """Send one request; return the content of the answer, or the address of a redirect.

        Raises OSError: FileNotFoundError, PermissionError, or another one that a retry may cure.
        """
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        request = urllib.request.Request(  # noqa: S310
            url, data=data, method=method, headers=headers if method == "PUT" else {}
        )
        timeout_s = _TIMEOUT_S if self._address in _answered else _FIRST_TIMEOUT_S
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            with error:
                if error.code in {301, 302, 307}:
                    return str(error.headers["Location"])
                text = error.read().decode("utf-8", "replace")
            try:
                reason = json.loads(text)["RemoteException"]
            except (ValueError, KeyError, TypeError):
                raise OSError(f"{self._address}: {error}") from error
            _answered.add(self._address)
            if reason["exception"] in _MISSING:
                raise FileNotFoundError(reason["message"]) from None
            if reason["exception"] in _REFUSED:
                raise PermissionError(f"{reason['exception']}: {reason['message']}") from None
            raise OSError(f"{reason['exception']}: {reason['message']}") from None
        except urllib.error.URLError as error:
            raise _unanswered(urlsplit(url).netloc, error.reason) from error
        except OSError as error:
            raise _unanswered(urlsplit(url).netloc, error) from error
        except http.client.HTTPException as error:
            raise OSError(f"{self._address}: no answer of HTTP: {error!r}") from error

    def _retried(self, action: Callable[[int], bytes | str]) -> bytes | str:
        """Call an action with the number of the attempt, until it does not fail any more."""
        for attempt in range(_ATTEMPTS):
            try:
                return action(attempt)
            except (FileNotFoundError, PermissionError):
                raise
            except OSError as error:
                unknown = self._address not in _answered
                last = _FIRST_ATTEMPTS - 1 if unknown else _ATTEMPTS - 1
                if attempt >= last or (unknown and isinstance(error, TimeoutError)):
                    raise
                time.sleep(_WAIT_S * 2**attempt if attempt < 5 else _WAIT_S * 32)
        raise AssertionError

    def _call(self, method: str, path: str, operation: str, **options: str) -> Any:
        """Ask the NameNode, with retries."""
        url = self._url(path, operation, options)
        content = self._retried(lambda _: self._ask(method, url))
        try:
            answer = json.loads(content) if content else None
        except ValueError as error:
            raise OSError(f"{self._address}: what answers there is no WebHDFS") from error
        _answered.add(self._address)
        return answer

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        """Return what each of some paths names."""
        found = []
        for path in paths:
            try:
                status = self._call("GET", path, "GETFILESTATUS")["FileStatus"]
                found.append(_info(path, status))
            except FileNotFoundError:
                found.append(fs.FileInfo(path, fs.FileType.NotFound))
        return found

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """Return the entries of a folder."""
        try:
            answer = self._call("GET", selector.base_dir, "LISTSTATUS")
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        found: list[fs.FileInfo] = []
        for status in answer["FileStatuses"]["FileStatus"]:
            info = _info(f"{selector.base_dir.rstrip('/')}/{status['pathSuffix']}", status)
            found.append(info)
            if selector.recursive and info.type == fs.FileType.Directory:
                found += self.get_file_info_selector(fs.FileSelector(info.path, recursive=True))
        return found

    def create_dir(self, path: str, recursive: bool) -> None:
        """Create a folder and its parents."""
        self._call("PUT", path, "MKDIRS")

    def delete_dir(self, path: str) -> None:
        """Delete a folder and everything in it."""
        self._call("DELETE", path, "DELETE", recursive="true")

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Delete everything in a folder."""
        for info in self.get_file_info_selector(
            fs.FileSelector(path, allow_not_found=missing_dir_ok)
        ):
            self._call("DELETE", info.path, "DELETE", recursive="true")

    def delete_root_dir_contents(self) -> None:
        """Always raise PermissionError: no caller wants this."""
        raise PermissionError("everything of a file system is not deleted from here")

    def delete_file(self, path: str) -> None:
        """Delete a file; raises FileNotFoundError."""
        if not self._call("DELETE", path, "DELETE")["boolean"]:
            raise FileNotFoundError(path)

    def move(self, source: str, target: str) -> None:
        """Rename a file in one step, over an existing one."""
        url = self._url(source, "RENAME", {"destination": target, "renameoptions": "OVERWRITE"})

        def rename(attempt: int) -> bytes | str:
            try:
                return self._ask("PUT", url)
            except FileNotFoundError:
                # The previous attempt succeeded, and its answer was lost.
                if attempt and self.get_file_info([target])[0].type == fs.FileType.File:
                    return b""
                raise

        self._retried(rename)

    def copy_file(self, source: str, target: str) -> None:
        """Copy a file through this process."""
        with self.open_input_file(source) as stream:
            content = stream.read()
        with self.open_output_stream(target, {}) as stream:
            stream.write(content)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for reading, with random access."""
        [info] = self.get_file_info([path])
        if info.type != fs.FileType.File:
            raise FileNotFoundError(path)
        raw = _RemoteFile(self, path, info.size)
        return pa.PythonFile(io.BufferedReader(raw, _READ_BYTES), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file for reading from its start."""
        return self.open_input_file(path)

    def open_output_stream(self, path: str, metadata: dict[str, str]) -> pa.NativeFile:
        """Open a file for writing; it exists once it is closed."""
        return pa.PythonFile(_Upload(self, path), mode="w")

    def open_append_stream(self, path: str, metadata: dict[str, str]) -> pa.NativeFile:
        """Always raise UnsupportedOperation: files are written once."""
        raise io.UnsupportedOperation("append")

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return a range of bytes of a file."""
        options = {"offset": str(offset), "length": str(length)}

        def fetch(_: int) -> bytes | str:
            location = self._data_node("GET", path, "OPEN", options)
            try:
                content = self._ask("GET", location)
                if len(content) != length:
                    raise OSError(f"{path}: {len(content)} of {length} bytes came")
                return content
            except (FileNotFoundError, PermissionError):
                raise
            except OSError:
                self._mistrust(location)
                raise

        content = self._retried(fetch)
        assert isinstance(content, bytes)
        return content

    def write(self, path: str, stream: IO[bytes], size: int) -> None:
        """Write a whole file."""

        def send(_: int) -> bytes | str:
            location = self._data_node("PUT", path, "CREATE", {"overwrite": "true"})
            stream.seek(0)
            try:
                return self._ask("PUT", location, stream, size)
            except PermissionError:
                raise
            except OSError:
                self._mistrust(location)
                raise

        self._retried(send)

    def _data_node(self, method: str, path: str, operation: str, options: dict[str, str]) -> str:
        """Return the DataNode's URL for a file's content, avoiding those that did not answer."""
        now = time.monotonic()
        self._mistrusted = {
            address: until for address, until in self._mistrusted.items() if until > now
        }
        wanted = {**options, "noredirect": "true"}
        if self._mistrusted:
            wanted["excludedatanodes"] = ",".join(sorted(self._mistrusted))
        try:
            answer = self._ask(method, self._url(path, operation, wanted))
        except FileNotFoundError:
            raise
        except OSError:
            # Perhaps there are no other DataNodes.
            self._mistrusted.clear()
            raise
        return str(json.loads(answer)["Location"])

    def _mistrust(self, location: str) -> None:
        """Avoid a DataNode for a while: the NameNode takes ten minutes to notice its death."""
        address = self._transfer_address(urlsplit(location).netloc)
        if address is not None:
            self._mistrusted[address] = time.monotonic() + _MISTRUST_S

    def _transfer_address(self, http_address: str) -> str | None:
        """Return the NameNode's address of the DataNode that has an HTTP address, if known."""
        query = "jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"
        try:
            [bean] = json.loads(self._ask("GET", f"http://{self._address}/{query}"))["beans"]
            nodes: dict[str, dict[str, Any]] = json.loads(bean["LiveNodes"])
            for name, node in nodes.items():
                host, port = name.partition(":")[0], node["infoAddr"].rpartition(":")[2]
                if http_address in {node["infoAddr"], f"{host}:{port}"}:
                    return str(node["xferaddr"])
        except (OSError, ValueError, KeyError, TypeError):
            # Without the address, the next attempt may lead to the same DataNode or to another.
            return None
        return None


def _unanswered(address: str, reason: object) -> OSError:
    """Return the error of a server that gives no answer."""
    if isinstance(reason, TimeoutError):
        return TimeoutError(f"{address}: timed out")
    if isinstance(reason, OSError) and reason.strerror:
        return OSError(f"{address}: {reason.strerror}")
    return OSError(f"{address}: {reason}")


def _info(path: str, status: dict[str, Any]) -> fs.FileInfo:
    directory = status["type"] == "DIRECTORY"
    return fs.FileInfo(
        path.rstrip("/"),
        fs.FileType.Directory if directory else fs.FileType.File,
        size=None if directory else status["length"],
        mtime=status["modificationTime"] / 1000,
    )


class _RemoteFile(io.RawIOBase):
    """A remote file that is read piece by piece."""

    def __init__(self, system: WebHdfs, path: str, size: int) -> None:
        self._system = system
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        length = max(0, min(len(buffer), self._size - self._position))
        if length:
            buffer[:length] = self._system.read(self._path, self._position, length)
            self._position += length
        return length


class _Upload(io.RawIOBase):
    """A file that is written to a spool, and sent when it is closed."""

    def __init__(self, system: WebHdfs, path: str) -> None:
        self._system = system
        self._path = path
        self._spool = tempfile.SpooledTemporaryFile(_SPOOL_BYTES)  # noqa: SIM115
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        count = self._spool.write(data)
        self._size += count
        return count

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._system.write(self._path, self._spool, self._size)
        finally:
            self._spool.close()
            super().close()
