"""What the console tools share: where the brokers are, and how answers are printed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from waylog.cli import CommandError
from waylog.config import DEFAULT_BOOTSTRAP_SERVERS
from waylog.kafka import client_config


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """Where the brokers are."""
    parser.add_argument(
        "--bootstrap-servers",
        default=DEFAULT_BOOTSTRAP_SERVERS,
        metavar="LIST",
        help="brokers, HOST:PORT,... (default %(default)s)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Output for programs."""
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def connect(bootstrap_servers: str) -> AdminClient:
    """An admin client of a cluster that answers; raises CommandError when none does."""
    admin = AdminClient(client_config(bootstrap_servers, "waylog-console"))
    try:
        admin.list_topics(timeout=5.0)
    except KafkaException:
        raise CommandError(
            f"no Kafka broker answers at {bootstrap_servers}; is `waylog up` running there?"
        ) from None
    return admin


def reason(error: KafkaException) -> str:
    """A broker's refusal as a sentence."""
    cause = error.args[0]
    return str(cause.str() if hasattr(cause, "str") else cause)


def parse_time(text: str) -> int:
    """Milliseconds since 1970 from milliseconds, or from ISO 8601 (UTC without a zone)."""
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"{text!r} is not a time: milliseconds or 2026-11-21T08:00:00 are expected"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """A table for people, or a JSON object a line for programs."""
    if as_json:
        for row in rows:
            sys.stdout.write(msgspec.json.encode(dict(row)).decode() + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    if not rows:
        Console(stderr=True).print("nothing to show")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, value in rows[0].items():
        numeric = isinstance(value, int) and not isinstance(value, bool)
        table.add_column(name.replace("_", " "), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
