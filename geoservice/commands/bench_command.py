"""`waylog geo bench`: the processor time of a lookup on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from waylog.cli import EXIT_DONE, CommandError

_EXAMPLES = """examples:
  waylog geo bench                                   towns of the world
  waylog geo bench --index liechtenstein.geo         streets
  waylog geo bench --index li.geo --nominatim http://127.0.0.1:8089

Install reverse_geocoder and reverse_geocode (PyPI) to have them in the same table.
"""


def add_bench(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog geo bench`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--index", type=Path, metavar="INDEX", help="(default: the embedded world)")
    parser.add_argument("--nominatim", metavar="URL", help="one with the same data, to compare")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run_bench(arguments: argparse.Namespace) -> int:
    """Measure and print the results."""
    import msgspec

    from geoservice.commands.bench import measure
    from geoservice.index.store import IndexUnavailable

    try:
        rows = measure(arguments.index, arguments.nominatim)
    except IndexUnavailable as error:
        raise CommandError(str(error)) from None
    if arguments.json:
        for row in rows:
            print(msgspec.json.encode(row).decode())
        return EXIT_DONE
    print("| look-up | CPU us a point | points/s on one core | points a call | |")
    print("|---|---|---|---|---|")
    for row in rows:
        print(f"| {row.name} | {row.cpu_us:,.2f} | {row.rate:,.0f} | {row.points} | {row.note} |")
    return EXIT_DONE
