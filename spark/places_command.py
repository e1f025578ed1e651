"""`waylog places`: find favourite places, and show them."""

from __future__ import annotations

import argparse
import logging
from typing import Any

from waylog.cli import CommandError
from waylog.config import DataDirectory

_EPILOG = """examples:
  waylog places run --once                 compute the places of all devices from the history
  waylog places show                       as a table
  waylog places show --device demo/phone --json
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


def run(arguments: argparse.Namespace) -> int:
    """Compute or show places."""
    if arguments.action == "show":
        return _show(arguments)
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    import signal
    import threading

    from spark.places_job import write_places
    from spark.session import close_session, open_session
    from spark.storage import Storage
    from waylog.notify import notify_ready
    from waylog.telemetry import configure_logging

    configure_logging()
    logger = logging.getLogger("spark.places")
    if not Storage(arguments.history).list_files():
        raise CommandError(f"{arguments.history}: there is no history; `waylog history run` first")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    session = open_session("waylog places", master=arguments.master)
    try:
        notify_ready()
        while True:
            try:
                write_places(session, arguments.history, arguments.out)
            except Exception as error:
                if stopping.is_set():
                    break
                if arguments.once:
                    raise CommandError(f"places were not computed: {error}") from error
                logger.exception("places were not computed")
            if arguments.once or stopping.wait(arguments.interval):
                break
    finally:
        close_session(session)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    rows = load_places(arguments.places, arguments.device)
    if arguments.json:
        import msgspec

        for row in rows:
            print(msgspec.json.encode(row).decode())
        return 0
    from rich.console import Console
    from rich.table import Table

    if not rows:
        who = f" of {arguments.device}" if arguments.device else ""
        print(
            f"No places{who} yet. A place needs two visits of five minutes or more, and half an "
            "hour in all."
        )
        return 0
    table = Table(box=None, header_style="bold")
    for column in ("device", "label", "name", "visits", "hours", "lat", "lon", "address"):
        right = column in {"visits", "hours", "lat", "lon"}
        table.add_column(column, justify="right" if right else "left")
    for row in rows:
        table.add_row(
            row["device"],
            row["label"] or "",
            row["name"] or "",
            str(row["visits"]),
            f"{row['dwell_s'] / 3600:.1f}",
            f"{row['lat']:.5f}",
            f"{row['lon']:.5f}",
            row["address"] or "",
        )
    Console().print(table)
    return 0


def load_places(url: str, device: str | None = None) -> list[dict[str, Any]]:
    """The places at a URL, by device and rank; raises CommandError when there are none at all."""
    import pyarrow.compute as pc

    from spark.places_job import FILE
    from spark.storage import Storage

    storage = Storage(url)
    if FILE not in storage.list_files():
        raise CommandError(f"{url}: there are no places yet; `waylog places run --once` finds them")
    table = storage.read_parquet(FILE)
    if device is not None:
        table = table.filter(pc.equal(table["device"], device))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
