"""`waylog geo download` and `waylog geo update`: OpenStreetMap extracts and their updates."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from waylog.cli import EXIT_DONE, CommandError

#: A public mirror for the whole world, with a new extract of each region every day.
DEFAULT_MIRROR: Final = "https://download.geofabrik.de"

_DOWNLOAD_EXAMPLES: Final = """examples:
  waylog geo download liechtenstein              liechtenstein-latest.osm.pbf, here
  waylog geo download us/california -o extracts  a folder, or a file's name
  waylog geo download --list | grep -i berlin
  waylog geo download liechtenstein --mirror https://osm.example/geofabrik

The mirror is laid out as Geofabrik's server. The data are OpenStreetMap's, under the ODbL 1.0.
"""


_UPDATE_EXAMPLES: Final = """examples:
  waylog geo update li.geo --extract liechtenstein-latest.osm.pbf
      all changes since, from the server that the extract names (Geofabrik's have one each)
  waylog geo update li.geo --extract li.osm.pbf --server https://osm.example/li-updates
  waylog geo update li.geo --extract li.osm.pbf --changes 813.osc.gz 814.osc.gz

The extract is replaced by the newer one, then the index by that of the newer extract. Both stay in
use until the new file is complete, and processes that follow the index take it without a restart.
"""


def add_download(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog geo download`."""
    parser.epilog = _DOWNLOAD_EXAMPLES
    parser.add_argument(
        "region", nargs="?", metavar="REGION", help="its id, name, path or country code"
    )
    parser.add_argument("--list", action="store_true", help="name the mirror's regions")
    parser.add_argument(
        "--mirror", default=DEFAULT_MIRROR, metavar="URL", help="(default %(default)s)"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(), metavar="FILE_OR_DIR", help="(default here)"
    )
    parser.add_argument("--json", action="store_true", help="the outcome for programs")


def download(arguments: argparse.Namespace) -> int:
    """Download one extract."""
    from geoservice.extracts.download import DownloadFailed

    if (arguments.region is None) != arguments.list:
        raise CommandError("give a REGION, or --list")
    try:
        asyncio.run(_list(arguments) if arguments.list else _download(arguments))
    except DownloadFailed as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    return EXIT_DONE


def add_update(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog geo update`."""
    parser.epilog = _UPDATE_EXAMPLES
    parser.add_argument("index", type=Path, metavar="INDEX", help="is built anew")
    parser.add_argument(
        "--extract",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE.osm.pbf",
        help="what the index is made of",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--changes",
        type=Path,
        nargs="+",
        metavar="FILE.osc.gz",
        help="change files to merge, of one extract",
    )
    source.add_argument(
        "--server", metavar="URL", help="replication server (default: what the extract says)"
    )
    parser.add_argument("--json", action="store_true", help="the outcome for programs")


def update(arguments: argparse.Namespace) -> int:
    """Update extracts and their index."""
    import msgspec

    if arguments.changes and len(arguments.extract) > 1:
        raise CommandError("--changes are those of one extract")
    from geoservice.importer.memory import limit_retained_memory

    limit_retained_memory()
    try:
        from geoservice.extracts.update import UpdateFailed, apply_files, apply_replication
        from geoservice.importer.build import ImportFailed, build_index
        from geoservice.importer.reading import SourceError
        from geoservice.tiles.archive import tiles_path
        from geoservice.tiles.build import build_tiles
        from geoservice.tiles.tiling import TilingFailed
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the update needs the Python package {error.name}; pip install 'waylog[geo]'"
        ) from None
    states = []
    try:
        for extract in arguments.extract:
            with _progress(extract.name, bytes_=False) as progress:
                states.append(
                    apply_files(extract, arguments.changes)
                    if arguments.changes
                    else apply_replication(extract, arguments.server, progress)
                )
        with _progress(arguments.index.name, bytes_=False) as progress:
            built = build_index(
                arguments.extract,
                arguments.index,
                lambda _text, part: progress(round(part * 1000), 1000),
            )
        tiles = tiles_path(arguments.index)
        if tiles.exists():
            with _progress(tiles.name, bytes_=False) as progress:
                build_tiles(
                    arguments.extract,
                    tiles,
                    lambda _text, part: progress(round(part * 1000), 1000),
                )
    except (UpdateFailed, SourceError, ImportFailed, TilingFailed) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    if arguments.json:
        outcome = {
            "path": str(built.path),
            "version": built.version,
            "bytes": built.size_bytes,
            "extracts": [state.describe() for state in states],
        }
        print(msgspec.json.encode(outcome).decode())
    else:
        for extract, state in zip(arguments.extract, states, strict=True):
            print(f"{extract}: as of {state.describe()['time'] or 'an unknown day'}")
        print(f"{built.path}: version {built.version}, {built.size_bytes:,} bytes")
    return EXIT_DONE


async def _list(arguments: argparse.Namespace) -> None:
    import msgspec

    from geoservice.extracts.download import DownloadFailed, Mirror

    async with Mirror(arguments.mirror) as mirror:
        regions = await mirror.regions()
    if regions is None:
        raise DownloadFailed(f"{arguments.mirror} does not name its regions")
    for region in sorted(regions, key=lambda region: region.path):
        if arguments.json:
            print(msgspec.json.encode(region).decode())
        else:
            print(f"{region.id:32} {region.name:32} {region.path}")


async def _download(arguments: argparse.Namespace) -> None:
    import msgspec

    from geoservice.extracts.download import Mirror, file_name

    async with Mirror(arguments.mirror) as mirror:
        region = await mirror.find(arguments.region)
        output: Path = arguments.output
        target = output / file_name(region) if output.suffix != ".pbf" else output
        with _progress(target.name) as progress:
            done = await mirror.download(region.path, target, progress)
    if arguments.json:
        print(
            msgspec.json.encode(
                {
                    "path": str(done.path),
                    "bytes": done.size_bytes,
                    "md5": done.md5,
                    "received": done.received_bytes,
                    "region": region.id,
                }
            ).decode()
        )
    elif done.already_there:
        print(f"{done.path}: is the newest already, {done.size_bytes:,} bytes")
    else:
        print(f"{done.path}: {done.size_bytes:,} bytes, MD5 as the mirror says")
        print(f"now: waylog geo import {done.path} -o {region.id.replace('/', '-')}.geo")


@contextmanager
def _progress(name: str, *, bytes_: bool = True) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
    if bytes_:
        columns += [DownloadColumn(), TransferSpeedColumn()]
    columns.append(TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
