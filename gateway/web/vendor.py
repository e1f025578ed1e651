"""Put the page's libraries beside it: `python -m gateway.web.vendor`.

The page requests nothing from the internet, so its libraries are fetched once, at set-up, from a
package registry. Packages of PyPI carry their files unchanged, npm has the originals; the files
from either must have the same SHA-256.

MapLibre GL JS draws the map. Versions before 5.11 do not draw every label from local fonts when a
style names no glyphs, so they cannot be used. Swagger UI shows /openapi.json at /docs.

The licence texts are kept in this folder and copied beside the libraries.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Library:
    """Files of one version, and where they can be had."""

    title: str
    version: str
    #: SHA-256 by name.
    files: Mapping[str, str] = field(repr=False)
    #: A requirement, and the folder of the files in its wheel.
    pypi: tuple[str, str]
    #: A package, and the folder of the files in its archive.
    npm: tuple[str, str]
    licence: str

    def __str__(self) -> str:
        return f"{self.title} {self.version}"

    def is_complete(self, target: Path) -> bool:
        """Tell whether `target` holds every file with the pinned content."""
        return (
            all(
                (target / name).is_file()
                and (target / f"{name}.gz").is_file()
                and _sha256((target / name).read_bytes()) == expected
                for name, expected in self.files.items()
            )
            and (target / self.licence).is_file()
        )


MAPLIBRE: Final = Library(
    "MapLibre GL JS",
    "5.24.0",
    {
        "maplibre-gl.js": "45a9b07a9189ce56054c620a947ccf41e291e58c95e9b61533b740aaa65ee5cb",
        "maplibre-gl.css": "ab1e70d59ec40465bae7e7030da2f3ccf28133fd502e62bd598eefbadfd7a732",
    },
    pypi=("roadstyle==0.25.0", "roadstyle/vendor/"),
    npm=("maplibre-gl@5.24.0", "package/dist/"),
    licence="MAPLIBRE-LICENSE.txt",
)
SWAGGER_UI: Final = Library(
    "Swagger UI",
    "5.34.0",
    {
        "swagger-ui-bundle.js": "3f6abf70480db7e07914df4c98a77385f22ea585eaf457a3e6415ba0eae2d167",
        "swagger-ui.css": "c3cfe8248c4b0b89673600fb829924eafbac6de4bc4b2b06f5f5243483074d0a",
    },
    pypi=("flask-swagger-ui==5.34.0", "flask_swagger_ui/dist/"),
    npm=("swagger-ui-dist@5.34.0", "package/"),
    licence="SWAGGER-UI-LICENSE.txt",
)
LIBRARIES: Final = (MAPLIBRE, SWAGGER_UI)
FOLDER: Final = Path(__file__).parent
_TIMEOUT_S: Final = 180


class VendorError(Exception):
    """A library could not be fetched, or its files are not the pinned ones."""


def is_complete(target: Path) -> bool:
    """Tell whether `target` holds every library."""
    return all(library.is_complete(target) for library in LIBRARIES)


def install(target: Path, report: Callable[[str], None] = print) -> None:
    """Fill `target` with what is missing there. Raises VendorError."""
    for library in LIBRARIES:
        if library.is_complete(target):
            report(f"page: {library} is in place")
        else:
            _install(library, target, report)


def _install(library: Library, target: Path, report: Callable[[str], None]) -> None:
    refusals = []
    for fetch in (from_pypi, from_npm):
        try:
            files = fetch(library, report)
            _verify(library, files)
        except VendorError as error:
            refusals.append(str(error))
            continue
        _write(library, target, files)
        report(f"page: {library} written to {target}")
        return
    raise VendorError(f"{library}: {'; '.join(refusals)}")


def from_pypi(library: Library, report: Callable[[str], None] = print) -> dict[str, bytes]:
    """Return the library's files from a wheel on PyPI. Raises VendorError."""
    package, members = library.pypi
    report(f"page: fetching {library} (in {package}) from PyPI")
    with tempfile.TemporaryDirectory() as folder:
        # A fixed platform is named because only the wheel's JavaScript is needed: the same wheel
        # serves every machine. None of its dependencies is fetched.
        _run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--disable-pip-version-check", "--no-input", "--dest", folder),
                *("--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.11"),
                *("--abi", "abi3", "--platform", "manylinux2014_x86_64", package),
            ]
        )
        wheels = list(Path(folder).glob("*.whl"))
        if not wheels:
            raise VendorError(f"pip brought no wheel of {package}")
        with zipfile.ZipFile(wheels[0]) as archive:
            try:
                return {name: archive.read(members + name) for name in library.files}
            except KeyError as error:
                raise VendorError(f"{wheels[0].name}: {error}") from error


def from_npm(library: Library, report: Callable[[str], None] = print) -> dict[str, bytes]:
    """Return the library's files from its npm package. Raises VendorError."""
    npm = shutil.which("npm")
    if npm is None:
        raise VendorError("npm is not installed")
    package, members = library.npm
    report(f"page: fetching {package} from npm")
    with tempfile.TemporaryDirectory() as folder:
        _run([npm, "pack", "--silent", package], folder)
        archives = list(Path(folder).glob("*.tgz"))
        if not archives:
            raise VendorError("npm brought no package")
        files = {}
        with tarfile.open(archives[0]) as archive:
            for name in library.files:
                try:
                    member = archive.extractfile(members + name)
                except KeyError:
                    member = None
                if member is None:
                    raise VendorError(f"{archives[0].name} has no {name}")
                files[name] = member.read()
        return files


def _run(command: list[str], folder: str | None = None) -> None:
    try:
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise VendorError(f"{command[0]} did not answer within {_TIMEOUT_S} s") from error
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        raise VendorError(
            lines[-1] if lines else f"{command[0]}: exit {error.returncode}"
        ) from error


def _verify(library: Library, files: Mapping[str, bytes]) -> None:
    for name, expected in library.files.items():
        found = _sha256(files[name])
        if found != expected:
            raise VendorError(f"{name} has SHA-256 {found}, not the pinned {expected}")


def _write(library: Library, target: Path, files: Mapping[str, bytes]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        _replace(target / name, content)
        # aiohttp's static files serve name.gz to a browser that accepts gzip.
        _replace(target / f"{name}.gz", gzip.compress(content, 9, mtime=0))
    _replace(target / library.licence, (FOLDER / library.licence).read_bytes())


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(content)
    temporary.replace(path)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> int:
    """Install the libraries; return 0, or 1 after printing one line that says why it failed."""
    try:
        install(FOLDER / "vendor", lambda line: print(line, flush=True))
    except VendorError as error:
        print(f"page: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
