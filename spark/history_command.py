"""`waylog history`: keep the topic `location` as Parquet."""

from __future__ import annotations

import argparse
import logging
import signal

from waylog.config import DEFAULT_BOOTSTRAP_SERVERS, DataDirectory

_EPILOG = """examples:
  waylog history run                               write the history as fixes arrive
  waylog history run --once                        write what there is, then end
  waylog history run --places data/places          find favourite places as well

The files are <out>/date=YYYY-MM-DD/location-<partition>-<first offset>-<last offset>.parquet, by
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
    add("--places", metavar="URL", help="also keep favourite places there")
    add(
        "--places-interval",
        metavar="S",
        type=float,
        default=300.0,
        help="seconds between two computations of places (300)",
    )
    add("--batch-rows", metavar="N", type=int, default=250_000, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Write the history until a signal, or until the end of the log with --once."""
    from spark.history import HistoryJob, HistorySettings
    from waylog.notify import notify_ready
    from waylog.telemetry import configure_logging

    configure_logging()
    settings = HistorySettings(
        bootstrap_servers=arguments.bootstrap_servers,
        out=arguments.out,
        once=arguments.once,
        source=arguments.source,
        master=arguments.master,
        checkpoint=arguments.checkpoint,
        trigger_s=arguments.trigger_seconds,
        places=arguments.places,
        places_interval_s=arguments.places_interval,
        jars=[jar for jar in arguments.jars.split(",") if jar],
        packages=[package for package in arguments.packages.split(",") if package],
        batch_rows=arguments.batch_rows,
    )
    logger = logging.getLogger("spark.history")

    def on_ready() -> None:
        logger.info("history of %s is written to %s", settings.bootstrap_servers, settings.out)
        notify_ready()

    job = HistoryJob(settings, on_ready)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: job.stop())
    total = job.run()
    logger.info(
        "history stopped: %d fixes in %d files, %d sent again left out",
        total.rows,
        total.files,
        total.duplicates,
    )
    return 0
