"""What the console tools share: where the brokers are, and how answers are printed."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from waylog.cli import CommandError
from waylog.config import DEFAULT_BOOTSTRAP_SERVERS
from waylog.kafka import client_config, consumer_config
from waylog.kafka_properties import client_properties, load_client_properties

TIMEOUT_S: Final = 10.0
_AGO: Final = re.compile(r"(\d+)(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: Thirteen digits are milliseconds; an offset that large would take centuries to reach.
_OFFSET_DIGITS_MAX: Final = 12

WHERE_HELP: Final = (
    "beginning, end, an offset, -N (N before the end), a time (ISO 8601, UTC without a zone, or "
    "milliseconds) or 15m, 2h, 3d (so long ago)"
)


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """Where the brokers are, and how to log in there."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "--bootstrap-servers",
        default=DEFAULT_BOOTSTRAP_SERVERS,
        metavar="LIST",
        help="brokers, HOST:PORT,... (default %(default)s)",
    )
    group.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="properties of the client (security.protocol, sasl.*, ssl.*), in Kafka's or "
        "librdkafka's names; default: $WAYLOG_KAFKA_CONFIG",
    )
    group.add_argument(
        "-X",
        dest="properties",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one property of the client; may be given several times",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Output for programs."""
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE words as a dict; raises CommandError."""
    found = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise CommandError(f"{option} {word}: NAME=VALUE is expected")
        found[name] = value
    return found


def security(arguments: argparse.Namespace) -> dict[str, str]:
    """The client's own properties; raises ConfigError, CommandError."""
    from_file = load_client_properties(arguments.command_config) if arguments.command_config else {}
    return from_file | client_properties(pairs(arguments.properties, "-X"))


def connect(arguments: argparse.Namespace) -> AdminClient:
    """An admin client of a cluster that answers; raises CommandError when none does."""
    said: list[str] = []
    options = client_config(arguments.bootstrap_servers, "waylog-console") | security(arguments)
    try:
        admin = AdminClient(options | {"error_cb": lambda error: said.append(error.str())})
        admin.list_topics(timeout=5.0)
    except KafkaException as error:
        cause = error.args[0]
        if not hasattr(cause, "code"):
            raise CommandError(str(cause)) from None
        admin.poll(0.1)  # what librdkafka has to say of it
        why = next((text for text in said if "uthenticat" in text or "SSL" in text), None)
        if why is not None:
            raise CommandError(f"{arguments.bootstrap_servers} lets us not in: {why}") from None
        raise CommandError(
            f"no Kafka broker answers at {arguments.bootstrap_servers}; is `waylog up` running "
            "there?"
        ) from None
    return admin


def open_consumer(
    arguments: argparse.Namespace, group: str = "waylog-console", **more: Any
) -> Consumer:
    """A consumer of the cluster."""
    options = consumer_config(arguments.bootstrap_servers, "waylog-console", group, **more)
    return Consumer(options | security(arguments))


def partitions_of(client: Any, topic: str) -> list[int]:
    """The numbers of a topic's partitions; raises CommandError if there is none."""
    metadata = client.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        raise CommandError(f"topic {topic}: {metadata.error.str()}")
    return sorted(metadata.partitions)


def find_offset(consumer: Consumer, topic: str, partition: int, where: str) -> int:
    """The offset that `WHERE_HELP` describes; raises CommandError."""
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
    if where in {"beginning", "earliest"}:
        return low
    if where in {"end", "latest"}:
        return high
    if where.startswith("-") and where[1:].isdigit():
        return max(low, high - int(where[1:]))
    if where.isdigit() and len(where) <= _OFFSET_DIGITS_MAX:
        return min(max(int(where), low), high)
    asked = TopicPartition(topic, partition, parse_time(where))
    found: int = consumer.offsets_for_times([asked], timeout=TIMEOUT_S)[0].offset
    return found if found >= 0 else high


def reason(error: KafkaException) -> str:
    """A broker's refusal as a sentence."""
    cause = error.args[0]
    return str(cause.str() if hasattr(cause, "str") else cause)


def parse_time(text: str) -> int:
    """Milliseconds since 1970 from milliseconds, from ISO 8601 (UTC without a zone), or from 2h."""
    if text.isdigit():
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return int((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"{text!r} is not a time: milliseconds, 2026-11-21T08:00:00 or 2h (ago) are expected"
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


def say(rows: Sequence[Mapping[str, Any]], text: str, *, as_json: bool) -> None:
    """What has been done: a sentence for people, rows for programs."""
    if as_json:
        print_rows(rows, as_json=True)
    else:
        print(text)
