"""`waylog fleet`: analyses over all devices."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from datetime import date
from typing import Any, Final

from spark.runtime.told_errors import told_errors
from waylog.config import ConfigError, DataDirectory
from waylog.observability.log_lines import one_line

_RESOLUTION_MAX: Final = 15  # of H3
_EPILOG = """examples:
  waylog fleet heatmap --history data/history > heat.geojson
  waylog fleet gaps --history data/history --from 2026-01-01 --missing 100
  waylog fleet quality --history data/history --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog fleet`."""
    parser.epilog = _EPILOG
    subparsers = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in (
        ("heatmap", "where the devices were, by H3 cell, as GeoJSON"),
        ("gaps", "expected against stored fixes, by device and day"),
        ("quality", "the data of each day"),
    ):
        own = subparsers.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add = own.add_argument
        add("--history", metavar="URL", default=str(DataDirectory.default().history))
        add("--from", dest="first", metavar="DATE", type=_date, help="first day (UTC)")
        add("--to", dest="last", metavar="DATE", type=_date, help="last day")
        if name == "heatmap":
            add(
                *("--resolution",),
                metavar="N",
                type=_resolution,
                default=9,
                help="of H3, 0 to 15 (9)",
            )
            add(
                "--devices-min",
                metavar="N",
                type=int,
                default=1,
                help="leave out cells that fewer devices were in, for maps that others see (1)",
            )
        else:
            add("--json", action="store_true", help="one JSON object a line")
        if name == "gaps":
            add("--missing", metavar="N", type=int, default=1, help="only if so many miss (1)")


def _resolution(text: str) -> int:
    if not text.isdecimal() or int(text) > _RESOLUTION_MAX:
        raise argparse.ArgumentTypeError(f"{text}: 0 to {_RESOLUTION_MAX} is expected")
    return int(text)


def _date(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: a date is expected, as in 2026-05-31") from None


def run(arguments: argparse.Namespace) -> int:
    """Run one analysis and print it."""
    with told_errors(arguments.history):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    import msgspec

    from spark.fixes.begun_history import open_history
    from spark.fleet import analyses as fleet

    if arguments.first and arguments.last and arguments.first > arguments.last:
        raise ConfigError(f"--from {arguments.first} is later than --to {arguments.last}")
    reader = open_history(arguments.history)
    dates = fleet.dates_between(reader, arguments.first, arguments.last)
    if arguments.action == "heatmap":
        cells = fleet.heat_map(reader, dates, arguments.resolution)
        collection = fleet.heat_map_geojson(cells, arguments.devices_min)
        sys.stdout.buffer.write(msgspec.json.encode(collection) + b"\n")
    elif arguments.action == "gaps":
        days = (day for day in fleet.gap_audit(reader, dates) if day.missing >= arguments.missing)
        _print(({**day._asdict(), "missing": day.missing} for day in days), arguments.json)
    else:
        _print((day._asdict() for day in fleet.quality(reader, dates)), arguments.json)
    return 0


def _print(rows: Iterable[dict[str, Any]], json: bool) -> None:
    if json:
        import msgspec

        for row in rows:
            print(msgspec.json.encode(row).decode())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    for number, row in enumerate(rows):
        if not number:
            for name, value in row.items():
                table.add_column(name, justify="left" if isinstance(value, str) else "right")
        table.add_row(*(Text(one_line(str(value))) for value in row.values()))
    if table.row_count:
        Console().print(table)
    else:
        print("Nothing to tell.")
