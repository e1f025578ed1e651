"""`waylog geo`: query, build and serve a geocoding index."""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.config import ConfigError

if TYPE_CHECKING:
    from geoservice.fallback.fallback import Fallback
    from geoservice.index.store import IndexFile
    from geoservice.reverse.geocoder import Geocoder, ReverseResult
    from geoservice.reverse.watch import WatchedGeocoder
    from geoservice.tiles.served import ServedTiles
    from waylog.config import Endpoint

logger = logging.getLogger(__name__)

_BATCH_LINES: Final = 1000
_FALLBACK_WAIT_S: Final = 5.0
_LINE_BYTES_MAX: Final = 1000

_EXAMPLES: Final = """examples:
  waylog geo reverse 47.1410 9.5209
  waylog geo reverse --json -33.87 151.21
  waylog geo reverse --batch points.csv       one lat,lon a line; NDJSON, in order
  cut -d, -f2,3 track.csv | waylog geo reverse --batch -
  waylog geo import liechtenstein-latest.osm.pbf -o liechtenstein.geo
  waylog geo reverse --index liechtenstein.geo --layer address 47.1410 9.5209
  waylog geo info
  waylog geo serve --listen 127.0.0.1:8088
  waylog geo world --output geoservice/world/world.bin
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands and options of `waylog geo`."""
    from geoservice.commands import search_command

    parser.epilog = _EXAMPLES
    subparsers = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, help_text: str) -> argparse.ArgumentParser:
        return subparsers.add_parser(
            name,
            help=help_text,
            description=help_text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    reverse = action("reverse", "which place is a point in?")
    reverse.epilog = _EXAMPLES
    reverse.add_argument("lat", nargs="?", type=float, metavar="LAT", help="degrees, -90..90")
    reverse.add_argument("lon", nargs="?", type=float, metavar="LON", help="degrees, -180..180")
    reverse.add_argument(
        "--batch", metavar="FILE", help="one lat,lon a line (- is standard input); NDJSON in order"
    )
    _add_index(reverse)
    reverse.add_argument(
        "--layer",
        type=_layers,
        default=None,
        metavar="LAYER[,LAYER]",
        help="address, poi, railway, natural, manmade (default: address,poi)",
    )
    reverse.add_argument(
        "--zoom", type=int, default=18, metavar="N", help="3 country, 5 state, 10 city, 18 all"
    )
    reverse.add_argument(
        "--distance",
        choices=("metres", "degrees"),
        default="metres",
        help="how to measure what is nearest: Nominatim does it in degrees, and knows no towns "
        "beyond its extract (%(default)s)",
    )
    reverse.add_argument(
        "--language",
        default="",
        metavar="LIST",
        help="wanted languages, best first: de,en (default: local names)",
    )
    reverse.add_argument("--json", action="store_true", help="one line of Nominatim's jsonv2")
    _add_fallback(reverse)

    search_command.add_search(action("search", "which places does a text name?"))

    info = action("info", "what is in an index")
    _add_index(info)
    info.add_argument("--json", action="store_true", help="for programs")

    serve = action("serve", "HTTP as Nominatim and Photon: /reverse, /search, /lookup, /status")
    serve.add_argument("--listen", default="127.0.0.1:8088", metavar="H:P", help="(%(default)s)")
    _add_index(serve)
    serve.add_argument(
        "--tiles",
        action="append",
        default=[],
        type=Path,
        metavar="FILE.pmtiles",
        help="vector tiles of the map in the schema Shortbread (default: INDEX.pmtiles if there "
        "is one); may be given several times: the first that has a tile answers",
    )
    _add_fallback(serve)

    from geoservice.commands import bench_command, extract_command, import_command

    extract_command.add_download(
        action("download", "bring an extract of OpenStreetMap from a mirror")
    )
    extract_command.add_update(
        action("update", "bring extracts and their index up to date with OpenStreetMap's changes")
    )
    import_command.add_import(action("import", "build an index of streets from OSM extracts"))
    import_command.add_compare(action("compare", "does an index agree with a Nominatim?"))
    bench_command.add_bench(action("bench", "what a look-up costs on this machine"))

    world = action("world", "build the embedded index of the world from installed packages")
    world.add_argument(
        "--output", type=Path, metavar="FILE", help="(default: where it is looked for)"
    )


def _add_index(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--index", type=Path, metavar="INDEX", help="index file (default: the embedded world)"
    )


def _add_fallback(parser: argparse.ArgumentParser) -> None:
    from geoservice.fallback.fallback import add_arguments as add_fallback_arguments

    add_fallback_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run one subcommand."""
    from geoservice.commands import bench_command, extract_command, import_command, search_command

    actions = {
        "reverse": _reverse,
        "info": _info,
        "search": search_command.run_search,
        "serve": _serve,
        "download": extract_command.download,
        "update": extract_command.update,
        "bench": bench_command.run_bench,
        "import": import_command.run_import,
        "compare": import_command.compare,
        "world": _world,
    }
    return actions[arguments.action](arguments)


def open_geocoder(index: Path | None) -> Geocoder:
    """Open an index for a command; raises CommandError."""
    from geoservice.index.store import IndexUnavailable
    from geoservice.reverse.geocoder import Geocoder

    try:
        return Geocoder.open(index)
    except IndexUnavailable as error:
        raise CommandError(str(error)) from None


def check_index(index: Path | None) -> None:
    """Raise ConfigError if the file is not an index; None stands for the embedded world."""
    from geoservice.index.store import IndexUnavailable, check_header

    if index is None:
        return
    try:
        check_header(index)
    except IndexUnavailable as error:
        raise ConfigError(str(error)) from None


def check(arguments: argparse.Namespace) -> None:
    """Check the arguments of `geo serve`; see waylog.cli.CommandModule."""
    from geoservice.fallback.fallback import check_arguments
    from waylog.config import parse_endpoint

    if arguments.action == "serve":
        parse_endpoint(arguments.listen)
        check_index(arguments.index)
        _check_tiles(arguments.tiles)
        check_arguments(arguments)


def _check_tiles(paths: Sequence[Path]) -> None:
    """Raise ConfigError if one of the files is not an archive of vector tiles."""
    from geoservice.tiles.archive import Archive, ArchiveUnavailable

    for path in paths:
        try:
            Archive(path).close()
        except ArchiveUnavailable as error:
            raise ConfigError(f"--tiles {error}") from None


def _served_tiles(arguments: argparse.Namespace) -> ServedTiles:
    from geoservice.tiles.archive import tiles_path
    from geoservice.tiles.served import ServedTiles

    beside = [] if arguments.index is None else [tiles_path(arguments.index)]
    return ServedTiles(arguments.tiles or beside)


def watch_geocoder(index: Path | None) -> WatchedGeocoder:
    """Open an index like `open_geocoder` and follow changes of the file; raises ConfigError."""
    from geoservice.index.store import IndexUnavailable
    from geoservice.reverse.watch import WatchedGeocoder

    try:
        return WatchedGeocoder(index)
    except IndexUnavailable as error:
        raise ConfigError(str(error)) from None


def _reverse(arguments: argparse.Namespace) -> int:
    if (arguments.batch is None) == (arguments.lat is None or arguments.lon is None):
        raise CommandError("give LAT LON, or --batch FILE")
    from geoservice.fallback.fallback import from_arguments

    geocoder = open_geocoder(arguments.index)
    with ExitStack() as stack:
        fallback = from_arguments(arguments, wait_s=_FALLBACK_WAIT_S)
        if fallback is not None:
            stack.callback(fallback.close)
        if arguments.batch is not None:
            good = _reverse_batch(geocoder, fallback, arguments.batch, _options(arguments))
            return EXIT_DONE if good else EXIT_FAILED
        try:
            result = geocoder.reverse(arguments.lat, arguments.lon, **_options(arguments))
        except ValueError as error:
            raise CommandError(str(error)) from None
        if fallback is not None:
            [result] = fallback.complete([result])
        print(_json_line(result) if arguments.json else result.display_name)
        return EXIT_DONE


def _layers(text: str) -> frozenset[str]:
    from geoservice.index.places import LAYERS

    layers = frozenset(text.split(","))
    if not layers <= LAYERS:
        raise argparse.ArgumentTypeError(f"layers are {', '.join(sorted(LAYERS))}")
    return layers


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the search options as keyword arguments of the geocoder."""
    from geoservice.index.places import DEFAULT_LAYERS
    from geoservice.web.languages import parse_languages

    return {
        "zoom": arguments.zoom,
        "layers": arguments.layer or DEFAULT_LAYERS,
        "distance": arguments.distance,
        "languages": parse_languages(arguments.language),
    }


def _json_error(message: str) -> str:
    import msgspec

    return msgspec.json.encode({"error": message}).decode()


def _json_line(result: ReverseResult) -> str:
    import msgspec

    from geoservice.web.nominatim import answer

    return msgspec.json.encode(answer(result)).decode()


def _reverse_batch(
    geocoder: Geocoder, fallback: Fallback | None, source: str, options: dict[str, Any]
) -> bool:
    """Answer each line, a bad one with an error; return whether all lines were good."""
    good = True
    with ExitStack() as stack:
        lines: IO[bytes] = sys.stdin.buffer
        size = None
        if source != "-":
            try:
                lines = stack.enter_context(Path(source).open("rb"))
                size = Path(source).stat().st_size
            except OSError as error:
                raise CommandError(f"{source}: {error.strerror}") from None
        advance = _progress(stack, size)
        numbered = enumerate(_read_lines(lines, source), start=1)
        while batch := list(itertools.islice(numbered, _BATCH_LINES)):
            points = [_parse_line(number, line) for number, line in batch]
            good_points = [point for point in points if isinstance(point, tuple)]
            results = geocoder.reverse_batch(
                [lat for lat, _ in good_points], [lon for _, lon in good_points], **options
            )
            if fallback is not None:
                results = fallback.complete(results)
            answered = iter(results)
            for point in points:
                if isinstance(point, tuple):
                    print(_json_line(next(answered)))
                else:
                    print(_json_error(point))
                    good = False
            sys.stdout.flush()
            advance(sum(len(line) for _, line in batch))
    return good


def _read_lines(lines: IO[bytes], source: str) -> Iterator[bytes]:
    while line := lines.readline(_LINE_BYTES_MAX):
        if len(line) == _LINE_BYTES_MAX:
            raise CommandError(f"{source}: a line is longer than {_LINE_BYTES_MAX} bytes")
        yield line


def _parse_line(number: int, line: bytes) -> tuple[float, float] | str:
    """Return the point, or an error message."""
    from geoservice.reverse.geocoder import is_point

    fields = line.strip().split(b",")
    try:
        lat, lon = float(fields[0]), float(fields[1])
    except (ValueError, IndexError):
        return f"line {number}: expected lat,lon in degrees"
    if not is_point(lat, lon):
        return (
            f"line {number}: the latitude must be between -90 and 90, "
            "the longitude between -180 and 180 degrees"
        )
    return lat, lon


def _progress(stack: ExitStack, size: int | None) -> Callable[[int], None]:
    """Return a function that advances a progress bar.

    The bar is shown only if standard error is a terminal, standard output is not, and the size of
    the input is known.
    """
    if size is None or not sys.stderr.isatty() or sys.stdout.isatty():
        return lambda _bytes: None
    from rich.console import Console
    from rich.progress import Progress

    progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
    task = progress.add_task("geocoding", total=size)
    return lambda count: progress.advance(task, count)


def _info(arguments: argparse.Namespace) -> int:
    import msgspec

    geocoder = open_geocoder(arguments.index)
    facts = _facts(geocoder.index) | {"index_version": geocoder.index_version}
    if geocoder.world_index is not geocoder.index:
        facts["world"] = _facts(geocoder.world_index)
    if arguments.json:
        print(msgspec.json.encode(facts).decode())
        return EXIT_DONE
    for line in _fact_lines(facts):
        print(line)
    return EXIT_DONE


def _facts(index: IndexFile) -> dict[str, Any]:
    from geoservice.index import format as file_format

    return {
        "path": str(index.path),
        "version": index.version,
        "format": file_format.FORMAT_VERSION,
        "bytes": index.size_bytes,
        **index.meta,
        "sections": index.section_bytes,
    }


def _fact_lines(facts: dict[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the facts as indented lines for people."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from _fact_lines(value, indent + "  ")
        elif name == "built":
            yield f"{indent}{name}: {datetime.fromtimestamp(value, UTC):%Y-%m-%dT%H:%M:%SZ}"
        elif name == "bounds":
            for west, south, east, north in value:
                yield f"{indent}bounds: latitude {south} to {north}, longitude {west} to {east}"
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    text = ", ".join(f"{key} {one}" for key, one in item.items() if one is not None)
                else:
                    text = str(item)
                if text:
                    yield f"{indent}{name}: {text}"
        else:
            yield (
                f"{indent}{name}: {value:,}"
                if isinstance(value, int)
                else f"{indent}{name}: {value}"
            )


def _serve(arguments: argparse.Namespace) -> int:
    import asyncio

    import uvloop

    from geoservice.fallback.fallback import from_arguments
    from waylog.config import parse_endpoint
    from waylog.observability.log_lines import configure_logging
    from waylog.supervision.listening_check import ListeningCheck

    configure_logging()
    check(arguments)
    endpoint = parse_endpoint(arguments.listen)
    ListeningCheck().check("--listen", endpoint)
    geocoder = watch_geocoder(arguments.index)
    fallback = from_arguments(arguments, wait_s=_FALLBACK_WAIT_S)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            tiles = _served_tiles(arguments)
            return runner.run(_serve_until_stopped(endpoint, geocoder, fallback, tiles))
    finally:
        geocoder.close()
        if fallback is not None:
            fallback.close()


async def _serve_until_stopped(
    endpoint: Endpoint,
    geocoder: WatchedGeocoder,
    fallback: Fallback | None,
    tiles: ServedTiles,
) -> int:
    """Serve until a signal (return 0), or until a background task fails (return 1)."""
    import gc
    from typing import cast

    from aiohttp import web

    from geoservice.web.listener import CONNECTIONS_MAX, Accept, listen
    from geoservice.web.server import make_app
    from waylog.network.connection_pool import ConnectionPool
    from waylog.network.peer_parties import ClientIdentifier
    from waylog.os_errors import describe_os_error
    from waylog.process.file_limit import raise_file_limit, room_for_connections
    from waylog.process.serving import serving

    # There is no access log, because its lines would hold the coordinates of requests.
    runner = web.AppRunner(
        make_app(geocoder, fallback, tiles), access_log=None, shutdown_timeout=5.0
    )
    parties = ClientIdentifier()
    raise_file_limit()
    async with serving() as process:
        process.closing.callback(parties.close)
        await runner.setup()
        process.closing.push_async_callback(runner.cleanup)
        # Objects that exist now live on; freeze them, so that the garbage collector skips them.
        gc.freeze()
        room = min(CONNECTIONS_MAX, room_for_connections())
        pool = ConnectionPool(room, parties.open().of, name="geocoder")
        accept = cast(Accept, runner.server)
        try:
            acceptor = listen(accept, endpoint, pool)
        except OSError as error:
            raise CommandError(describe_os_error(error)) from None
        process.closing.push_async_callback(acceptor.close)
        logger.info(
            "geocoder ready http=%s index=%s version=%s",
            acceptor.address,
            geocoder.current.index.path,
            geocoder.current.index_version,
        )
        process.ready()
        await process.stopped()
    return EXIT_FAILED if process.has_failed else EXIT_DONE


def _world(arguments: argparse.Namespace) -> int:
    import time

    from geoservice.index.store import WORLD_PATH
    from geoservice.world.builder import SourceMissing, build_world

    started = time.monotonic()
    terminal = sys.stderr.isatty()

    def report(step: str) -> None:
        if terminal:
            print(f"{time.monotonic() - started:6.1f} s  {step}", file=sys.stderr)

    try:
        built = build_world(arguments.output or WORLD_PATH, report)
    except SourceMissing as error:
        raise CommandError(str(error)) from None
    print(
        f"{built.path}: {built.countries} countries, {built.towns:,} towns, "
        f"{built.size_bytes:,} bytes, version {built.version}, "
        f"{time.monotonic() - started:.1f} s"
    )
    return EXIT_DONE
