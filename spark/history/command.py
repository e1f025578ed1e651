"""`waylog history`: keep the topic `location` as Parquet."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from spark.runtime.checkpoint import check_checkpoint
from spark.runtime.masters import check_master_form
from spark.runtime.told_errors import told_errors
from waylog.cli import CommandError
from waylog.config import (
    DEFAULT_BOOTSTRAP_SERVERS,
    ConfigError,
    DataDirectory,
    check_bootstrap_servers,
    check_finite,
)
from waylog.extras import install_command, is_installed
from waylog.history.storage_url import check_storage_url

#: Options of `history run` that only Spark has, with their defaults.
_OF_SPARK: Final = {
    "source": "python", "jars": "", "packages": "", "master": "local[2]", "checkpoint": None,
    "on_stall": "wait",
}  # fmt: skip
#: A scheme (`file:`, `local:`, `https:`) or a pattern.
_FOUND_BY_SPARK: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:|[*?\[{]")

_EPILOG = """examples:
  waylog history run                               write the history as fixes arrive
  waylog history run --once                        write what there is, then end
  waylog history run --places data/places          find favourite places as well

  waylog history compact                           pack days that are over, for quick reading
  waylog history export --user demo --format gpx -o demo.gpx
  waylog history erase --user demo --yes --bootstrap-servers 127.0.0.1:9092
  waylog history files --date 2026-01-31           what to give to other programs
  waylog history publish                           as a Delta table

The files are <out>/month=YYYY-MM/YYYY-MM-DD-location-<partition>-<first>-<last offset>.parquet, by
UTC date of the fixes, complete and with every fix once at any moment, for any reader:
  duckdb -c "select count(*) from 'data/history/*/*.parquet'"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog history`."""
    subparsers = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    run_parser = subparsers.add_parser(
        "run",
        help="write fixes to Parquet",
        description="Write the fixes of topic `location` to Parquet, each once.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = run_parser.add_argument
    add("--once", action="store_true", help="write what is in the log now, then end")
    add("--bootstrap-servers", metavar="LIST", default=DEFAULT_BOOTSTRAP_SERVERS)
    add("--out", metavar="URL", default=str(DataDirectory.default().history), help="a folder")
    add(
        "--engine",
        choices=("spark", "arrow"),
        default="spark",
        help="arrow: in this process alone, without a JVM; the same files",
    )
    add(
        "--source",
        choices=("python", "jvm"),
        default="python",
        help="jvm: Spark's Kafka connector, from --jars or --packages",
    )
    add("--jars", metavar="LIST", default="", help="comma-separated jars for Spark")
    add("--packages", metavar="LIST", default="", help="comma-separated Maven coordinates")
    add("--master", metavar="M", default="local[2]", help="Spark's master (local[2])")
    add(
        "--checkpoint",
        metavar="URL",
        help="folder of Spark's offsets (default: _checkpoint in --out)",
    )
    add("--trigger-seconds", metavar="S", type=float, default=5.0, help="time between batches (5)")
    add("--starting-offsets", choices=("earliest",), default="earliest", help=argparse.SUPPRESS)
    add(
        "--stalled-after",
        metavar="S",
        type=float,
        default=300.0,
        help="seconds that records may wait without any being written, before that is told (300)",
    )
    add(
        "--on-stall",
        choices=("wait", "arrow"),
        default="wait",
        help="arrow: go on without Spark when records have waited for so long",
    )
    add("--places", metavar="URL", help="also keep favourite places there")
    add(
        "--places-interval",
        metavar="S",
        type=float,
        default=300.0,
        help="seconds between two computations of places (300)",
    )
    add(
        "--compact-interval",
        metavar="S",
        type=float,
        default=21_600.0,
        help="seconds between two times that days which are over are packed; 0: never (21600)",
    )
    add(
        "--compact-settled",
        metavar="HOURS",
        type=float,
        default=24.0,
        help="only days that have got nothing for so long (24)",
    )
    add("--batch-rows", metavar="N", type=int, default=250_000, help=argparse.SUPPRESS)
    _add_compact(subparsers)
    _add_files(subparsers)
    _add_publish(subparsers)
    _add_export(subparsers)
    _add_erase(subparsers)


def _subparser(subparsers: Any, name: str, summary: str, text: str) -> Any:
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=text,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", metavar="URL", default=str(DataDirectory.default().history), help="the history"
    )
    return parser


def _add_compact(subparsers: Any) -> None:
    add = _subparser(
        subparsers,
        "compact",
        "pack days into few files, ordered for reading",
        "Exchange the files of days that are over for few, small ones that are ordered for "
        "reading, and the small days of a month that is over for one. What gets late fixes is "
        "packed again. Readers that follow _manifest.json "
        "see every fix once at any moment; those that list folders see fixes twice for a moment.",
    ).add_argument
    add("--before", metavar="DATE", help="days before this one, UTC (default: today)")
    add("--all", action="store_true", help="today as well")
    add(
        "--settled",
        metavar="HOURS",
        type=float,
        default=0.0,
        help="only what has got nothing for so long (0)",
    )
    add(
        "--files-max",
        metavar="N",
        type=int,
        help="also pack a day that is not over when it has more than N small files",
    )
    add("--keep-days", action="store_true", help="do not join the days of a month")
    add("--grace", metavar="S", type=float, default=0.0, help="delete old files so much later (0)")
    add("--engine", choices=("spark", "arrow"), default="arrow", help="what spreads the days")
    add("--master", metavar="M", default="local[2]", help="Spark's master (local[2])")
    add("--workers", metavar="N", type=int, default=1, help="processes of --engine arrow (1)")
    add("--json", action="store_true", help="one JSON object a day or month")


def _add_files(subparsers: Any) -> None:
    add = _subparser(
        subparsers,
        "files",
        "list the files that count",
        "List the files that make up the history now, one a line, for programs that do not know "
        "its manifest.",
    ).add_argument
    add("--date", metavar="DATE", help="of this day (UTC) only")
    add("--json", action="store_true", help="one JSON object a file")


def _add_publish(subparsers: Any) -> None:
    _subparser(
        subparsers,
        "publish",
        "make the history a Delta table",
        "Write which files count now to a Delta table in the same folder, for Spark, Trino, "
        "DuckDB, Polars and others. No row is copied. Say it again for what has come in since; "
        "packing and erasing bring the table up to date. Needs the extra `delta`.",
    ).add_argument("--json", action="store_true", help="what was written as one JSON object")


def _add_who(add: Any) -> None:
    add(
        "--device",
        metavar="D",
        action="append",
        default=[],
        help="USER/DEVICE, or with --user one of that user's devices alone; may be repeated",
    )
    add(
        "--user",
        metavar="U",
        action="append",
        default=[],
        help="all devices of a user, unless --device limits it; may be repeated",
    )


def _add_export(subparsers: Any) -> None:
    add = _subparser(
        subparsers,
        "export",
        "write all fixes of somebody to a file",
        "Write the fixes of some devices as GPX, GeoJSON, KML, CSV or Parquet, day by day: a year "
        "takes no more memory than a day.",
    ).add_argument
    _add_who(add)
    add("--format", choices=("geojson", "gpx", "kml", "csv", "parquet"), default="gpx")
    add("--from", dest="from_time", metavar="TIME", help="ISO 8601; UTC unless it says otherwise")
    add("--to", dest="to_time", metavar="TIME", help="ISO 8601")
    add("-o", "--file", metavar="FILE", help="instead of standard output")


def _add_erase(subparsers: Any) -> None:
    add = _subparser(
        subparsers,
        "erase",
        "erase somebody",
        "Erase devices: history, places and compacted topics. Topics that keep everything for a "
        "time can not lose single records: the report says until when they have them, and which "
        "of them nobody can read any more (`waylog up --encrypt-values`). Revoke the "
        "user first, or what is sent meanwhile comes in again.",
    ).add_argument
    _add_who(add)
    add("--places", metavar="URL", default=str(DataDirectory.default().places), help="the places")
    add("--bootstrap-servers", metavar="LIST", help="the log; without it the log is not touched")
    add(
        "--patience",
        type=float,
        default=30.0,
        metavar="S",
        help="wait so long for destroyed keys to leave the log's files (default 30)",
    )
    add("--yes", action="store_true", help="it can not be undone, and I know")
    add("--json", action="store_true", help="the report as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Run one subcommand."""
    with told_errors(arguments.out):
        if arguments.action == "run":
            return _run(arguments)
        from spark.history import tools as history_tools

        action: Callable[[argparse.Namespace], int] = getattr(history_tools, arguments.action)
        return action(arguments)


def check(arguments: argparse.Namespace) -> None:
    """Check the arguments of `history run`; see waylog.cli.CommandModule."""
    if arguments.action != "run":
        return
    check_bootstrap_servers(arguments.bootstrap_servers)
    check_finite(arguments, "--trigger-seconds", "--places-interval")
    check_finite(arguments, "--compact-interval", "--compact-settled", "--stalled-after")
    if not (arguments.trigger_seconds > 0 and arguments.places_interval > 0):
        raise ConfigError("--trigger-seconds and --places-interval are more than 0")
    if not (arguments.compact_interval >= 0 and arguments.compact_settled >= 0):
        raise ConfigError("--compact-interval and --compact-settled are at least 0")
    if not arguments.stalled_after > 0:
        raise ConfigError("--stalled-after is more than 0")
    if arguments.on_stall == "arrow" and arguments.once:
        raise ConfigError("--on-stall arrow is for a job that goes on; --once ends with the error")
    if arguments.batch_rows < 1:
        raise ConfigError("--batch-rows is at least 1")
    check_storage_url("--out", arguments.out, written=True)
    if arguments.places is not None:
        check_storage_url("--places", arguments.places, written=True)
    if arguments.engine == "spark":
        _check_spark(arguments)
        return
    for option, value in _OF_SPARK.items():
        if getattr(arguments, option) != value:
            raise ConfigError(
                f"--{option.replace('_', '-')} is for --engine spark; --engine arrow has no use "
                "for it"
            )


def _check_spark(arguments: argparse.Namespace) -> None:
    if not is_installed("spark"):
        raise CommandError(
            f"the history needs Spark, which is not installed: {install_command('spark')}, or "
            "choose --engine arrow (with `waylog up`: --history-options='--engine arrow', or "
            "--no-history)"
        )
    check_checkpoint(arguments.out, arguments.checkpoint)
    check_master_form(arguments.master)
    for jar in _listed(arguments.jars):
        # Spark itself looks for what these stand for.
        if not _FOUND_BY_SPARK.search(jar) and not Path(jar).is_file():
            raise ConfigError(f"--jars {jar}: there is no such file")
    for package in _listed(arguments.packages):
        if package.count(":") != 2:
            raise ConfigError(f"--packages {package}: GROUP:ARTIFACT:VERSION is expected")


def _listed(text: str) -> list[str]:
    """Return the items of a list with commas, as Spark reads it."""
    return [item for each in text.split(",") if (item := each.strip())]


def _run(arguments: argparse.Namespace) -> int:
    """Write the history until a signal, or until the end of the log with --once."""
    from spark.history.job import HistoryJob, HistorySettings
    from waylog.history.storage_errors import shown_url
    from waylog.observability.log_lines import configure_logging
    from waylog.process.notify import notify_ready
    from waylog.process.stop_limit import StopLimit
    from waylog.process.stop_signals import on_stop_signal

    check(arguments)
    configure_logging()
    settings = HistorySettings(
        bootstrap_servers=arguments.bootstrap_servers,
        out=arguments.out,
        once=arguments.once,
        engine=arguments.engine,
        source=arguments.source,
        master=arguments.master,
        checkpoint=arguments.checkpoint,
        trigger_s=arguments.trigger_seconds,
        places=arguments.places,
        places_interval_s=arguments.places_interval,
        compact_interval_s=arguments.compact_interval,
        compact_settled_h=arguments.compact_settled,
        jars=_listed(arguments.jars),
        packages=_listed(arguments.packages),
        batch_rows=arguments.batch_rows,
        stalled_after_s=arguments.stalled_after,
        on_stall=arguments.on_stall,
    )
    logger = logging.getLogger("spark.history")

    def on_ready() -> None:
        where = shown_url(settings.out)
        logger.info("history of %s is written to %s", settings.bootstrap_servers, where)
        notify_ready()

    limit = StopLimit()
    limit.armed = True
    job = HistoryJob(settings, on_ready, limit)
    on_stop_signal(job.stop)
    total = job.run()
    logger.info(
        "history stopped: %d fixes in %d files, %d sent again left out",
        total.rows,
        total.files,
        total.duplicates,
    )
    return 0
