"""`waylog consume`: records of a topic as lines."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from waylog.cli import EXIT_DONE, CommandError
from waylog.console.common import add_bootstrap, connect, parse_time, reason
from waylog.kafka import consumer_config

_EXAMPLES: Final = """examples:
  waylog consume location                             what comes from now on
  waylog consume location --from beginning --max 10 --json
  waylog consume address --from 2026-11-21T08:00:00 --exit
  waylog consume error --partition 0 --from 120 --key
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `waylog consume`."""
    parser.epilog = _EXAMPLES
    add_bootstrap(parser)
    parser.add_argument("topic")
    parser.add_argument(
        "--from",
        dest="start",
        default="end",
        metavar="WHERE",
        help="beginning, end, an offset, -N (the newest N of each partition) or a time",
    )
    parser.add_argument("--partition", type=int, action="append", metavar="N", help="default: all")
    parser.add_argument("--max", type=int, metavar="N", help="stop after N records")
    parser.add_argument("--exit", action="store_true", help="stop at the present end")
    parser.add_argument("--key", action="store_true", help="print the key before the value")
    parser.add_argument(
        "--json", action="store_true", help="everything about a record as one JSON object a line"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print records until the end that was asked for, or Ctrl-C."""
    connect(arguments.bootstrap_servers)
    consumer = Consumer(
        consumer_config(arguments.bootstrap_servers, "waylog-consume", "waylog-consume")
    )
    try:
        ends = _assign(consumer, arguments)
        _print_records(consumer, arguments, ends)
    except KafkaException as error:
        raise CommandError(reason(error)) from None
    except KeyboardInterrupt:
        pass  # the usual way to end it
    finally:
        consumer.close()
    return EXIT_DONE


def _assign(consumer: Consumer, arguments: argparse.Namespace) -> dict[int, int]:
    """Start where it was asked for; returns the partitions' ends that are not reached yet."""
    topic: str = arguments.topic
    metadata = consumer.list_topics(topic, timeout=10.0).topics[topic]
    if metadata.error is not None:
        raise CommandError(f"topic {topic}: {metadata.error.str()}")
    partitions = arguments.partition or sorted(metadata.partitions)
    unknown = set(partitions) - set(metadata.partitions)
    if unknown:
        raise CommandError(f"topic {topic} has no partition {min(unknown)}")
    assignment = []
    ends = {}
    for number in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10.0)
        start = _start(consumer, TopicPartition(topic, number), arguments.start, low, high)
        assignment.append(TopicPartition(topic, number, start))
        if start < high:
            ends[number] = high
    consumer.assign(assignment)
    return ends


def _start(consumer: Consumer, partition: TopicPartition, where: str, low: int, high: int) -> int:
    if where == "beginning":
        return low
    if where == "end":
        return high
    if where.startswith("-") and where[1:].isdigit():
        return max(low, high - int(where[1:]))
    # Thirteen digits are milliseconds; an offset that large would take centuries to reach.
    if where.isdigit() and len(where) < 13:
        return min(max(int(where), low), high)
    partition.offset = parse_time(where)
    found: int = consumer.offsets_for_times([partition], timeout=10.0)[0].offset
    return found if found >= 0 else high


def _print_records(consumer: Consumer, arguments: argparse.Namespace, ends: dict[int, int]) -> None:
    printed = 0
    while not (arguments.exit and not ends):
        for message in consumer.consume(500, timeout=0.2):
            if message.error() is not None:
                raise KafkaException(message.error())
            sys.stdout.buffer.write(_line(message, arguments))
            printed += 1
            if arguments.max is not None and printed >= arguments.max:
                sys.stdout.flush()
                return
        sys.stdout.flush()
        if ends:
            positions = [TopicPartition(arguments.topic, number) for number in ends]
            for position in consumer.position(positions):
                if position.offset >= ends[position.partition]:
                    del ends[position.partition]


def _line(message: Message, arguments: argparse.Namespace) -> bytes:
    value = message.value() or b""
    if arguments.json:
        record: dict[str, Any] = {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
            "key": _text(message.key()),
            "value": _value(message.value()),
            "headers": _headers(message),
        }
        return msgspec.json.encode(record) + b"\n"
    if arguments.key:
        return bytes(message.key() or b"") + b"\t" + value + b"\n"
    return bytes(value) + b"\n"


def _headers(message: Message) -> dict[str, str | None]:
    headers: Any = message.headers() or ()  # librdkafka's stubs leave the type of an item open
    return {name: _text(item) for name, item in headers}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _value(data: bytes | None) -> Any:
    """JSON as JSON, anything else as text."""
    if data is None:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _text(data)
