"""The shell of the page: the files that it is made of, under one version.

The version is made of the content of all of them and is part of their URLs, `/static/VERSION/...`:
a page and what it loads later are of one version, also while the platform is upgraded. The service
worker begins with the list, so that a browser that finds other bytes there takes the new shell.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

#: Files of the shell, as globs in the page's folder. Types are for developers, and the worker is
#: not kept by itself.
_FILES: Final = (
    *("css/**/*.css", "js/**/*.js", "locales/*.json"),
    *("vendor/maplibre-gl.js", "vendor/maplibre-gl.css", "world/index.json", "icon.svg"),
)
_WORKER: Final = "js/offline/service_worker.js"
#: Documents whose references get the version.
INDEX: Final = "index.html"
_DOCUMENTS: Final = (INDEX, "share.html", "docs.html")
_VERSIONED_PATH: Final = re.compile(r"(v-[0-9a-f]{16})/(.+)", re.DOTALL)
_REFERENCE: Final = re.compile(r'(?<=")/static/([^"]+)(?=")')

#: Modification time in ns and size of a file.
_Mark = tuple[int, int]


@dataclass(frozen=True)
class Shell:
    """The files of one version."""

    version: str
    #: SHA-256 of what the browser keeps, by the path that it asks for.
    hashes: Mapping[str, str] = field(repr=False)
    documents: Mapping[str, bytes] = field(repr=False)
    #: The script of the service worker.
    worker: bytes = field(repr=False)


class ShellFolder:
    """Reads the shell from a folder, and again when a file has changed there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._marks: dict[str, _Mark] = {}
        self._shell: Shell | None = None

    def current(self) -> Shell:
        """Return the shell as the files are now. Blocks while it looks at them."""
        marks = {name: _mark(self.folder / name) for name in self._names()}
        if self._shell is None or marks != self._marks:
            self._shell = self._read(marks)
            self._marks = marks
        return self._shell

    def unversioned(self, path: str) -> str | None:
        """Return a versioned path below /static/ without its version; None for another path.

        Raises LookupError where what the version had is not there any more.
        """
        found = _VERSIONED_PATH.fullmatch(path)
        if found is None:
            return None
        version, name = found.groups()
        known = self._shell is not None and self._shell.version == version
        if not known or name not in self._marks:
            raise LookupError(name)
        try:
            unchanged = _mark(self.folder / name) == self._marks[name]
        except OSError:
            unchanged = False
        if not unchanged:
            raise LookupError(name)
        return name

    def _names(self) -> Iterator[str]:
        found = (path for pattern in _FILES for path in self.folder.glob(pattern))
        names = {path.relative_to(self.folder).as_posix() for path in found}
        yield from sorted({*names, *_DOCUMENTS})

    def _read(self, marks: Mapping[str, _Mark]) -> Shell:
        contents = {name: (self.folder / name).read_bytes() for name in marks}
        whole = hashlib.sha256()
        for name, content in contents.items():
            whole.update(f"{name}\0{_sha256(content)}\n".encode())
        version = f"v-{whole.hexdigest()[:16]}"
        worker = contents.pop(_WORKER)
        documents = {
            name: _document(contents.pop(name).decode(), version, contents.keys())
            for name in _DOCUMENTS
        }
        hashes = {
            f"/static/{version}/{name}": _sha256(content) for name, content in contents.items()
        } | {"/": _sha256(documents[INDEX])}
        said = msgspec.json.encode({"version": version, "files": hashes})
        return Shell(version, hashes, documents, b"const SHELL = " + said + b";\n" + worker)


def _document(text: str, version: str, files: Container[str]) -> bytes:
    def versioned(found: re.Match[str]) -> str:
        kept = found[1] in files
        return f"/static/{version}/{found[1]}" if kept else found[0]

    marked = text.replace("<html ", f'<html data-shell="{version}" ', 1)
    return _REFERENCE.sub(versioned, marked).encode()


def _mark(path: Path) -> _Mark:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
