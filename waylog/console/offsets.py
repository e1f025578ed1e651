"""`waylog offsets`: prints the first offset, the end and the offset at a time of each partition."""

from __future__ import annotations

import argparse
from typing import Final

from confluent_kafka import KafkaException

from waylog.administration.log_access import partitions_of
from waylog.administration.offsets import offset_at, parse_time, watermarks
from waylog.cli import EXIT_DONE, CommandError
from waylog.console.common import access_of, add_bootstrap, add_json, connect, print_rows
from waylog.kafka.errors import error_text

_EXAMPLES: Final = """examples:
  waylog offsets location
  waylog offsets location --at 2026-11-21T08:00:00
  waylog offsets location --at 2h                     what came in the last two hours
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog offsets`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("topic")
    parser.add_argument(
        "--at", metavar="TIME", help="also the first offset at or after this time (or 2h ago)"
    )
    add_json(parser)
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one row a partition."""
    at_ms = parse_time(arguments.at) if arguments.at else None
    connect(arguments)
    topic = arguments.topic
    consumer = access_of(arguments).open_consumer()
    rows = []
    try:
        for number in partitions_of(consumer, topic):
            low, high = watermarks(access_of(arguments), consumer, topic, number)
            row = {"partition": number, "first": low, "end": high, "records": high - low}
            if at_ms is not None:
                found = offset_at(access_of(arguments), consumer, topic, number, at_ms)
                row["at_time"] = found if found >= 0 else high
            rows.append(row)
    except KafkaException as error:
        raise CommandError(error_text(error)) from None
    finally:
        consumer.close()
    print_rows(rows, as_json=arguments.json)
    return EXIT_DONE
