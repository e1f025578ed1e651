"""Put MapLibre GL JS beside the page: `python -m gateway.web.vendor`.

The page requests nothing from the internet, so the library is fetched once, at set-up, from a
package registry. PyPI's `roadstyle` carries the files of MapLibre GL JS 5.24.0 unchanged, npm has
the original; the files from either must have the same SHA-256. Versions before 5.11 do not draw
every label from local fonts when a style names no glyphs, so they cannot be used.

The licence text (BSD 3-clause) is kept in this folder and copied beside the library.
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
from collections.abc import Callable
from pathlib import Path

MAPLIBRE_VERSION = "5.24.0"
FILES_SHA256 = {
    "maplibre-gl.js": "45a9b07a9189ce56054c620a947ccf41e291e58c95e9b61533b740aaa65ee5cb",
    "maplibre-gl.css": "ab1e70d59ec40465bae7e7030da2f3ccf28133fd502e62bd598eefbadfd7a732",
}
LICENCE = "MAPLIBRE-LICENSE.txt"
FOLDER = Path(__file__).parent
PYPI_PACKAGE = "roadstyle==0.25.0"
_PYPI_MEMBERS = "roadstyle/vendor/"
_NPM_MEMBERS = "package/dist/"
_TIMEOUT_S = 180


class VendorError(Exception):
    """The library could not be fetched, or its files are not the pinned ones."""


def is_complete(target: Path) -> bool:
    """Tell whether `target` holds every file with the pinned content."""
    return all(
        (target / name).is_file() and _sha256((target / name).read_bytes()) == expected
        for name, expected in FILES_SHA256.items()
    ) and all((target / name).is_file() for name in [*_gzip_names(), LICENCE])


def install(target: Path, report: Callable[[str], None] = print) -> None:
    """Fill `target`, unless it is complete. Raises VendorError."""
    if is_complete(target):
        report(f"map library: MapLibre GL JS {MAPLIBRE_VERSION} is in place")
        return
    refusals = []
    for fetch in (from_pypi, from_npm):
        try:
            files = fetch(report)
            _verify(files)
        except VendorError as error:
            refusals.append(str(error))
            continue
        _write(target, files)
        report(f"map library: MapLibre GL JS {MAPLIBRE_VERSION} written to {target}")
        return
    raise VendorError("; ".join(refusals))


def from_pypi(report: Callable[[str], None] = print) -> dict[str, bytes]:
    """Return the library's files from a wheel on PyPI. Raises VendorError."""
    report(f"map library: fetching MapLibre GL JS {MAPLIBRE_VERSION} (in {PYPI_PACKAGE}) from PyPI")
    with tempfile.TemporaryDirectory() as folder:
        # A fixed platform is named because only the wheel's JavaScript is needed: the same wheel
        # serves every machine. None of its dependencies is fetched.
        _run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--disable-pip-version-check", "--no-input", "--dest", folder),
                *("--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.11"),
                *("--abi", "abi3", "--platform", "manylinux2014_x86_64", PYPI_PACKAGE),
            ]
        )
        wheels = list(Path(folder).glob("*.whl"))
        if not wheels:
            raise VendorError(f"pip brought no wheel of {PYPI_PACKAGE}")
        with zipfile.ZipFile(wheels[0]) as archive:
            try:
                return {name: archive.read(_PYPI_MEMBERS + name) for name in FILES_SHA256}
            except KeyError as error:
                raise VendorError(f"{wheels[0].name}: {error}") from error


def from_npm(report: Callable[[str], None] = print) -> dict[str, bytes]:
    """Return the library's files from its npm package. Raises VendorError."""
    npm = shutil.which("npm")
    if npm is None:
        raise VendorError("npm is not installed")
    report(f"map library: fetching maplibre-gl@{MAPLIBRE_VERSION} from npm")
    with tempfile.TemporaryDirectory() as folder:
        _run([npm, "pack", "--silent", f"maplibre-gl@{MAPLIBRE_VERSION}"], folder)
        archives = list(Path(folder).glob("*.tgz"))
        if not archives:
            raise VendorError("npm brought no package")
        files = {}
        with tarfile.open(archives[0]) as archive:
            for name in FILES_SHA256:
                member = archive.extractfile(_NPM_MEMBERS + name)
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


def _verify(files: dict[str, bytes]) -> None:
    for name, expected in FILES_SHA256.items():
        found = _sha256(files[name])
        if found != expected:
            raise VendorError(f"{name} has SHA-256 {found}, not the pinned {expected}")


def _write(target: Path, files: dict[str, bytes]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        _replace(target / name, content)
        # aiohttp's static files serve name.gz to a browser that accepts gzip.
        _replace(target / f"{name}.gz", gzip.compress(content, 9, mtime=0))
    _replace(target / LICENCE, (FOLDER / LICENCE).read_bytes())


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(content)
    temporary.replace(path)


def _gzip_names() -> list[str]:
    return [f"{name}.gz" for name in FILES_SHA256]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> int:
    """Install the library; return 0, or 1 after printing one line that says why it failed."""
    try:
        install(FOLDER / "vendor", lambda line: print(line, flush=True))
    except VendorError as error:
        print(f"map library: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
