"""`waylog places`: compute, show and name favourite places."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from spark.runtime.reasons import reason_of
from spark.runtime.told_errors import is_expected, told_errors
from waylog.cli import CommandError
from waylog.config import DEFAULT_BOOTSTRAP_SERVERS, ConfigError, DataDirectory
from waylog.observability.log_lines import one_line

if TYPE_CHECKING:
    from spark.runtime.tasks import Engine

_EPILOG = """examples:
  waylog places run --once                 compute the places of all devices from the history
  waylog places show                       as a table
  waylog places show --device demo/phone --json
  waylog places name demo/phone 4c1f... "Grandma's" --label none
  duckdb -c "select * from 'data/places/visits/*.parquet' where device = 'demo/phone'"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog places`."""
    data = DataDirectory.default()
    parser.epilog = _EPILOG
    subparsers = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    run_parser = subparsers.add_parser(
        "run",
        help="compute the places of all devices",
        description="Compute the favourite places of all devices from the history: where a device "
        "stayed repeatedly, which of these is home and which work.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = run_parser.add_argument
    add("--once", action="store_true", help="compute once, then end")
    add("--history", metavar="URL", default=str(data.history), help="Parquet of `history run`")
    add("--out", metavar="URL", default=str(data.places), help="folder of places.parquet")
    add("--interval", metavar="S", type=float, default=300.0, help="seconds between two runs (300)")
    add("--master", metavar="M", default="local[2]", help="Spark's master (local[2])")
    add(
        "--engine",
        choices=("spark", "arrow"),
        default="spark",
        help="arrow: in processes of this machine, without a JVM",
    )
    add("--workers", metavar="N", type=int, help="processes of --engine arrow (one a core)")
    add(
        "--bootstrap-servers",
        metavar="LIST",
        help="also read names that users gave from there, and publish to topic `place`",
    )
    show_parser = subparsers.add_parser(
        "show",
        help="show places",
        description="Show the favourite places that were found.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = show_parser.add_argument
    add("--places", metavar="URL", default=str(data.places), help="folder of places.parquet")
    add("--device", metavar="D", help="only this device (user/device)")
    add("--json", action="store_true", help="one JSON object a line")

    name_parser = subparsers.add_parser(
        "name",
        help="name a place",
        description="Say what a place is: a name, a label, or both. It stays through all later "
        "computations and counts from the next one on.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = name_parser.add_argument
    add("device", help="user/device")
    add("place_id", help="as `places show --json` has it")
    add("name", nargs="?", help="the new name")
    add(
        "--label",
        choices=("home", "work", "none"),
        help="what the place is; none: neither home nor work",
    )
    add("--places", metavar="URL", default=str(data.places), help="folder of places.parquet")
    add("--bootstrap-servers", metavar="LIST", default=DEFAULT_BOOTSTRAP_SERVERS)


def run(arguments: argparse.Namespace) -> int:
    """Compute, show or name places."""
    runs = arguments.action == "run"
    places = arguments.out if runs else arguments.places
    with told_errors(arguments.history if runs else places, places):
        return {"run": _run, "show": _show, "name": _name}[arguments.action](arguments)


def _name(arguments: argparse.Namespace) -> int:
    import time

    from spark.places.topics import append_edit
    from waylog.history.place_edits import PlaceEdit
    from waylog.kafka.clients import LogUnreachable

    if arguments.name is None and arguments.label is None:
        raise CommandError("nothing to say of the place: give a name or a --label")
    rows = load_places(arguments.places, arguments.device)
    place = next((row for row in rows if row["place_id"] == arguments.place_id), None)
    if place is None:
        raise CommandError(f"{arguments.device} has no place {arguments.place_id}")
    edit = PlaceEdit(
        device=arguments.device,
        place_id=arguments.place_id,
        lat=place["lat"],
        lon=place["lon"],
        time=time.time_ns() // 1_000_000,
        name=arguments.name,
        label=arguments.label,
    )
    try:
        append_edit(arguments.bootstrap_servers, edit)
    except LogUnreachable as error:
        raise CommandError(str(error)) from error
    return 0


def _run(arguments: argparse.Namespace) -> int:
    import threading

    from spark.fixes.begun_history import open_history
    from spark.runtime.tasks import open_engine
    from waylog.observability.log_lines import configure_logging
    from waylog.process.notify import notify_ready
    from waylog.process.stop_signals import on_stop_signal

    configure_logging()
    logger = logging.getLogger("spark.places")
    open_history(arguments.history)
    stopping = threading.Event()
    on_stop_signal(stopping.set)
    with ExitStack() as stack:
        engine = open_engine(arguments, stack, "waylog places")
        notify_ready()
        while True:
            try:
                _compute(engine, arguments)
            except ConfigError:
                raise  # the master key is missing or wrong: trying again does not help
            except Exception as error:
                if stopping.is_set():
                    break
                reason = f"places were not computed: {reason_of(error)}"
                if arguments.once:
                    raise CommandError(reason) from error
                logger.error("%s", reason, exc_info=None if is_expected(error) else error)
            if arguments.once or stopping.wait(arguments.interval):
                break
    return 0


def _compute(engine: Engine, arguments: argparse.Namespace) -> None:
    from spark.places.job import write_places
    from spark.places.topics import publish_places, read_edits

    servers = arguments.bootstrap_servers
    edits = read_edits(servers) if servers else []
    written = write_places(engine, arguments.history, arguments.out, edits)
    if servers:
        publish_places(servers, arguments.out, written.changed)


def _show(arguments: argparse.Namespace) -> int:
    try:
        rows = load_places(arguments.places, arguments.device)
    except NoPlacesYet as reason:
        if not arguments.json:
            raise
        # As other lists: no line for a program to read, and no mistake of its user.
        print(reason, file=sys.stderr)
        return 0
    if arguments.json:
        import msgspec

        for row in rows:
            print(msgspec.json.encode(row).decode())
        return 0
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        who = f" of {arguments.device}" if arguments.device else ""
        print(
            f"No places{who} yet. A place needs twenty minutes in all, in one visit with several "
            "fixes or in two."
        )
        return 0
    table = Table(box=None, header_style="bold")
    for column in ("device", "label", "name", "visits", "hours", "lat", "lon", "address"):
        right = column in {"visits", "hours", "lat", "lon"}
        table.add_column(column, justify="right" if right else "left")
    for row in rows:
        table.add_row(
            Text(one_line(row["device"])),
            row["label"] or "",
            Text(one_line(row["name"] or "")),
            str(row["visits"]),
            f"{row['dwell_s'] / 3600:.1f}",
            f"{row['lat']:.5f}",
            f"{row['lon']:.5f}",
            Text(one_line(row["address"] or "")),
        )
    Console().print(table)
    return 0


class NoPlacesYet(CommandError):
    """Nothing has looked for places yet."""


def load_places(url: str, device: str | None = None) -> list[dict[str, Any]]:
    """Return the places at a URL, by device and rank; raises NoPlacesYet if there is no table."""
    import pyarrow.compute as pc

    from spark.places.schema import FILE
    from waylog.history.storage import Storage

    storage = Storage(url)
    if FILE not in storage.list_files():
        raise NoPlacesYet(f"{url}: there are no places yet; `waylog places run --once` finds them")
    table = storage.read_parquet(FILE)
    if device is not None:
        table = table.filter(pc.equal(table["device"], device))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
