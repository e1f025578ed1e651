"""`waylog geo import` and `waylog geo compare`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.malformed import MALFORMED

if TYPE_CHECKING:
    from geoservice.commands.compare import Agreement

_IMPORT_EXAMPLES: Final = """examples:
  waylog geo import liechtenstein-latest.osm.pbf -o liechtenstein.geo
  waylog geo import at.osm.pbf ch.osm.pbf -o alps.geo   overlapping extracts count once
  waylog geo import liechtenstein-latest.osm.pbf -o liechtenstein.geo --tiles-only
  waylog geo reverse --index liechtenstein.geo 47.1410 9.5209

INDEX.pmtiles beside the index has the streets of the map (vector tiles in the schema Shortbread).
Both are written beside the old ones and take their places at once; who has the old ones open keeps
them. They are derived from OpenStreetMap and under the ODbL 1.0.
"""

_COMPARE_EXAMPLES: Final = """examples:
  waylog geo compare truth.jsonl.gz --index liechtenstein.geo
  waylog geo compare truth.jsonl.gz --index new.geo --distance metres --misses 50

A line of the truth: {"lat":..,"lon":..,"kind":"street","result":{..},"address_layer":{..}}, where
`result` is what a Nominatim answers in jsonv2, `address_layer` the same with layer=address.
"""


def add_import(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog geo import`."""
    parser.epilog = _IMPORT_EXAMPLES
    parser.add_argument(
        "extracts", nargs="+", type=Path, metavar="FILE.osm.pbf", help="one or many extracts"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="INDEX")
    tiles = parser.add_mutually_exclusive_group()
    tiles.add_argument("--no-tiles", action="store_true", help="leave the map's tiles out")
    tiles.add_argument(
        "--tiles-only", action="store_true", help="make INDEX.pmtiles anew, without the index"
    )
    parser.add_argument("--json", action="store_true", help="the outcome for programs")


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog geo compare`."""
    parser.epilog = _COMPARE_EXAMPLES
    parser.add_argument("truth", type=Path, metavar="TRUTH.jsonl", help="may be packed with gzip")
    parser.add_argument("--index", type=Path, required=True, metavar="INDEX")
    parser.add_argument(
        "--distance",
        choices=("metres", "degrees"),
        default="degrees",
        help="degrees is how Nominatim measures (%(default)s)",
    )
    parser.add_argument(
        "--layer",
        choices=("address", "default"),
        default="address",
        help="without or with points of interest (%(default)s)",
    )
    parser.add_argument("--misses", type=int, default=10, metavar="N", help="how many to list")
    parser.add_argument("--json", action="store_true", help="for programs")


def run_import(arguments: argparse.Namespace) -> int:
    """Build an index, and the tiles beside it."""
    import msgspec

    from geoservice.importer.memory import limit_retained_memory

    limit_retained_memory()
    try:
        from geoservice.importer.build import ImportFailed, build_index
        from geoservice.importer.reading import SourceError
        from geoservice.tiles.archive import tiles_path
        from geoservice.tiles.build import build_tiles
        from geoservice.tiles.tiling import TilingFailed, program
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the import needs the Python package {error.name}; pip install 'waylog[geo]'"
        ) from None
    from geoservice.index.store import IndexUnavailable

    facts: dict[str, Any] = {}
    lines = []
    started = time.monotonic()
    with_tiles = not arguments.no_tiles
    try:
        try:
            if with_tiles:
                program()
        except TilingFailed as error:
            if arguments.tiles_only:
                raise
            print(f"waylog: going on without tiles of the map: {error}", file=sys.stderr)
            with_tiles = False
        with _progress() as report:
            if not arguments.tiles_only:
                built = build_index(arguments.extracts, arguments.output, report)
                seconds = time.monotonic() - started
                facts |= asdict(built) | {"path": str(built.path), "seconds": round(seconds, 1)}
                lines.append(
                    f"{built.path}: {built.streets:,} streets, {built.houses:,} house numbers, "
                    f"{built.areas:,} areas, {built.size_bytes:,} bytes, version {built.version}, "
                    f"{seconds:.1f} s"
                )
            if with_tiles:
                started = time.monotonic()
                tiles = build_tiles(arguments.extracts, tiles_path(arguments.output), report)
                seconds = time.monotonic() - started
                facts["tiles"] = asdict(tiles) | {
                    "path": str(tiles.path),
                    "seconds": round(seconds, 1),
                }
                lines.append(
                    f"{tiles.path}: {tiles.tiles:,} tiles, {tiles.features:,} features, "
                    f"{tiles.size_bytes:,} bytes, {seconds:.1f} s"
                )
    except (SourceError, ImportFailed, IndexUnavailable, TilingFailed) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename or arguments.output}: {error.strerror}") from None
    if arguments.json:
        print(msgspec.json.encode(facts).decode())
    else:
        print("\n".join(lines))
    return EXIT_DONE


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """Show a progress bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _text, _part: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("importing", total=1.0)
        yield lambda text, part: progress.update(task, description=text, completed=part)


def compare(arguments: argparse.Namespace) -> int:
    """Print how well an index agrees with Nominatim."""
    from geoservice.commands.command import open_geocoder
    from geoservice.commands.compare import compare as compare_points
    from geoservice.commands.compare import read_truth

    geocoder = open_geocoder(arguments.index)
    try:
        agreement = compare_points(
            geocoder,
            read_truth(arguments.truth),
            distance=arguments.distance,
            address_only=arguments.layer == "address",
        )
    except OSError as error:
        raise CommandError(f"{arguments.truth}: {error.strerror or error}") from None
    except (*MALFORMED, KeyError, TypeError, EOFError) as error:
        raise CommandError(f"{arguments.truth}: not a truth file: {error}") from None
    if arguments.json:
        print(_json(agreement))
    else:
        _print(agreement, arguments.misses)
    return EXIT_DONE if agreement.compared else EXIT_FAILED


def _json(agreement: Agreement) -> str:
    import msgspec

    rows = [
        {"field": name, "kind": kind, "agreed": agreed, "compared": compared}
        for name, kind, agreed, compared in agreement.rows()
    ]
    misses = [msgspec.to_builtins(miss) for miss in agreement.misses]
    return msgspec.json.encode({"agreement": rows, "misses": misses}).decode()


def _print(agreement: Agreement, misses: int) -> None:
    kinds = sorted({kind for _, kind, _, _ in agreement.rows()} - {"all"})
    print(f"{'percent':14}" + "".join(f"{kind:>12}" for kind in ["all", *kinds]))
    for name in agreement.compared:
        cells = [agreement.percent(name, kind) for kind in ["all", *kinds]]
        print(
            f"{name:14}"
            + "".join(f"{cell:12.1f}" if cell is not None else f"{'-':>12}" for cell in cells)
        )
    reasons = Counter((miss.reason, ", ".join(miss.fields)) for miss in agreement.misses)
    if reasons:
        print("\nmisses by reason")
    for (reason, fields), count in reasons.most_common():
        print(f"{count:6}  {reason}: {fields}")
    for miss in agreement.misses[:misses]:
        print(f"\n{miss.lat},{miss.lon}  {miss.kind}  {', '.join(miss.fields)}")
        print(f"  theirs: {miss.theirs}\n  ours:   {miss.ours}")
