"""The options that all commands have which run a worker."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from consumers.worker.processing_guarantee import AT_LEAST_ONCE, PROCESSING_GUARANTEES
from waylog.config import ConfigError, check_finite

if TYPE_CHECKING:
    from consumers.worker.membership import WorkerSettings


def add_worker_options(parser: argparse.ArgumentParser, results: str) -> None:
    """Add the options; `results` says what the worker writes, for example "addresses"."""
    parser.add_argument(
        "--processing-guarantee",
        choices=PROCESSING_GUARANTEES,
        default=AT_LEAST_ONCE,
        help=f"exactly_once_v2: {results} and offsets are written in transactions, so that after a "
        "crash readers of committed records see nothing twice (default %(default)s)",
    )
    parser.add_argument(
        "--report-interval",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds between two lines of counters (default 30)",
    )


def check_worker_options(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for a value that cannot be used."""
    check_finite(arguments, "--report-interval")
    if not arguments.report_interval > 0:
        raise ConfigError("--report-interval is more than 0")


def worker_settings(arguments: argparse.Namespace) -> WorkerSettings:
    """Return the settings that the options say."""
    from consumers.worker.membership import WorkerSettings

    return WorkerSettings(
        processing_guarantee=arguments.processing_guarantee,
        report_interval_s=arguments.report_interval,
    )
