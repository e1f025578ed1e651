"""`waylog produce`: lines of standard input become records of a topic."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.console.common import add_bootstrap, connect, reason
from waylog.kafka import producer_config

_EXAMPLES: Final = """examples:
  echo hello | waylog produce trips
  printf 'anna/phone|{"lat":47.14}\\n' | waylog produce trips --key-separator '|'
  waylog produce trips --header source=test < lines.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `waylog produce`."""
    parser.epilog = _EXAMPLES
    add_bootstrap(parser)
    parser.add_argument("topic")
    parser.add_argument("--key", help="the key of every record")
    parser.add_argument("--key-separator", metavar="TEXT", help="what stands between key and value")
    parser.add_argument(
        "--partition", type=int, default=-1, metavar="N", help="default: by the key"
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="of every record"
    )
    parser.add_argument(
        "--compression", default="lz4", choices=["none", "gzip", "snappy", "lz4", "zstd"]
    )


def run(arguments: argparse.Namespace) -> int:
    """Read lines until the end; returns 0 when all are acknowledged."""
    connect(arguments.bootstrap_servers)
    headers = []
    for word in arguments.header:
        name, separator, value = word.partition("=")
        if not separator:
            raise CommandError(f"--header {word}: NAME=VALUE is expected")
        headers.append((name, value.encode()))
    failures: list[str] = []
    count = 0

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error.str())

    producer = Producer(
        producer_config(
            arguments.bootstrap_servers,
            "waylog-produce",
            compression_type=arguments.compression,
        )
    )
    for line in sys.stdin.buffer:
        text: bytes = line.rstrip(b"\r\n")
        key = arguments.key.encode() if arguments.key is not None else None
        if arguments.key_separator is not None:
            first, separator_bytes, rest = text.partition(arguments.key_separator.encode())
            if separator_bytes:
                key, text = first, rest
        while True:
            try:
                producer.produce(
                    arguments.topic,
                    text,
                    key,
                    partition=arguments.partition,
                    headers=headers,
                    on_delivery=on_delivery,
                )
                break
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                raise CommandError(reason(error)) from None
        producer.poll(0)
        count += 1
    producer.flush()
    print(f"{count - len(failures)} of {count} records acknowledged", file=sys.stderr)
    if failures:
        print(f"waylog produce: {failures[0]}", file=sys.stderr)
    return EXIT_FAILED if failures else EXIT_DONE
