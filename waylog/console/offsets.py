"""`waylog offsets`: the first, the last and a time's offset of each partition."""

from __future__ import annotations

import argparse
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from waylog.cli import EXIT_DONE, CommandError
from waylog.console.common import add_bootstrap, add_json, connect, parse_time, print_rows, reason
from waylog.kafka import consumer_config

_EXAMPLES: Final = """examples:
  waylog offsets location
  waylog offsets location --at 2026-11-21T08:00:00
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `waylog offsets`."""
    parser.epilog = _EXAMPLES
    add_bootstrap(parser)
    add_json(parser)
    parser.add_argument("topic")
    parser.add_argument("--at", metavar="TIME", help="also the first offset at or after this time")


def run(arguments: argparse.Namespace) -> int:
    """Print one row a partition."""
    connect(arguments.bootstrap_servers)
    topic = arguments.topic
    at_ms = parse_time(arguments.at) if arguments.at else None
    consumer = Consumer(
        consumer_config(arguments.bootstrap_servers, "waylog-offsets", "waylog-offsets")
    )
    rows = []
    try:
        metadata = consumer.list_topics(topic, timeout=10.0).topics[topic]
        if metadata.error is not None:
            raise CommandError(f"topic {topic}: {metadata.error.str()}")
        for number in sorted(metadata.partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10.0)
            row = {"partition": number, "first": low, "end": high, "records": high - low}
            if at_ms is not None:
                asked = TopicPartition(topic, number, at_ms)
                found = consumer.offsets_for_times([asked], timeout=10.0)[0].offset
                row["at_time"] = found if found >= 0 else high
            rows.append(row)
    except KafkaException as error:
        raise CommandError(reason(error)) from None
    finally:
        consumer.close()
    print_rows(rows, as_json=arguments.json)
    return EXIT_DONE
