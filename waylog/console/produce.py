"""`waylog produce`: writes lines of standard input as records to a topic."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from waylog.administration.answers import find_lack
from waylog.administration.cluster_admin import LATE_S
from waylog.administration.log_access import partitions_of
from waylog.administration.offsets import parse_time
from waylog.cli import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, CommandError
from waylog.console.common import access_of, add_bootstrap, connect, pairs, security
from waylog.console.formats import Encode, add_formats, as_text, encoder
from waylog.kafka.clients import producer_config
from waylog.kafka.errors import not_stored_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.malformed import MALFORMED
from waylog.os_errors import describe_os_error
from waylog.serialization.serializer import Serialized

_EXAMPLES: Final = """examples:
  echo hello | waylog produce trips
  printf 'anna/phone|{"lat":47.14}\\n' | waylog produce trips --key-separator '|'
  waylog produce trips --header source=test --input lines.txt
  waylog produce trips --key-separator '|' --null '' < keys.txt        empty values: tombstones
  waylog produce trips --value-format avro --value-schema trip.avsc < trips.jsonl
  waylog produce trips --value-format avro --schema-registry http://127.0.0.1:8081 < trips.jsonl
                                        by the newest schema of subject trips-value
  waylog consume trips --from beginning --exit --json | waylog produce copy --json
"""


_STANDARD_INPUT: Final = Path("-")
_NONE: Final = Serialized(None)


class _Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    timestamp: int
    partition: int


class _JsonRecord(msgspec.Struct):
    """The members of a `waylog consume --json` line that are needed to write the record again."""

    key: msgspec.Raw = msgspec.Raw(b"null")
    value: msgspec.Raw = msgspec.Raw(b"null")
    headers: dict[str, str | None] = {}
    timestamp: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog produce`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("topic")
    parser.add_argument(
        "--input",
        type=Path,
        default=_STANDARD_INPUT,
        metavar="FILE",
        help="lines (default -: standard input)",
    )
    parser.add_argument("--key", help="the key of every record")
    parser.add_argument("--key-separator", metavar="TEXT", help="what stands between key and value")
    parser.add_argument(
        "--null", metavar="TEXT", help="a value that is this text is null (a tombstone)"
    )
    parser.add_argument(
        "--partition", type=int, default=-1, metavar="N", help="default: by the key"
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="of every record"
    )
    parser.add_argument("--timestamp", metavar="TIME", help="of every record (default: now)")
    parser.add_argument(
        "--json",
        action="store_true",
        help="each line is an object with key, value, headers and timestamp",
    )
    parser.add_argument(
        "--compression", default="lz4", choices=["none", "gzip", "snappy", "lz4", "zstd"]
    )
    parser.add_argument(
        "--acks", default="all", choices=["all", "1", "0"], help="acknowledgements (default all)"
    )
    add_formats(parser)
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write lines until their end; return 0 if all records were acknowledged."""
    try:
        opened = _opened(arguments.input)
    except OSError as error:
        raise CommandError(f"--input: {describe_os_error(error)}", EXIT_USAGE) from None
    with opened as lines:
        return _send(arguments, lines)


def _opened(path: Path) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(sys.stdin.buffer) if path == _STANDARD_INPUT else path.open("rb")


def _send(arguments: argparse.Namespace, lines: IO[bytes]) -> int:
    records = _records(arguments, lines)
    partitions = partitions_of(connect(arguments), arguments.topic)
    if arguments.partition >= 0 and arguments.partition not in partitions:
        raise CommandError(f"topic {arguments.topic} has no partition {arguments.partition}")
    failures: list[KafkaError] = []
    count = 0

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    options = producer_config(
        arguments.bootstrap_servers,
        "waylog-produce",
        compression_type=arguments.compression,
        acks=arguments.acks,
        enable_idempotence=arguments.acks == "all",
    )
    producer = LibrdkafkaProducer(options | security(arguments))
    try:
        for record in records:
            if not _produce(producer, arguments.topic, record, on_delivery):
                break
            count += 1
    finally:
        lack = _flush(producer, arguments)
        # After a fatal error the reports of some records may be missing.
        acknowledged = 0 if producer.has_failed else count - len(failures)
        print(f"{acknowledged} of {count} records acknowledged", file=sys.stderr)
    if failures and not lack:
        lack = not_stored_text(failures[0], arguments.topic)
        if failures[0].code() == KafkaError._MSG_TIMED_OUT:
            # Too few replicas in sync, for one thing, are no error before time is up.
            missing = find_lack(access_of(arguments), (arguments.topic,)).text(writes=True)
            lack += f": {missing}" if missing else ""
    if producer.has_failed and not lack:
        lack = "an error ended the producer before all records were sent"
    if lack:
        print(f"waylog produce: {lack}", file=sys.stderr)
    return EXIT_FAILED if lack else EXIT_DONE


def _flush(producer: LibrdkafkaProducer, arguments: argparse.Namespace) -> str:
    """Wait for all acknowledgements; return why none come any more, empty if all have come."""
    left, late = len(producer), 0
    while left:
        try:
            before, left = left, producer.flush(LATE_S)
        except KafkaException as error:
            return not_stored_text(error, arguments.topic)
        if left < before:
            late = 0
            continue
        late += 1
        lack = find_lack(access_of(arguments), (arguments.topic,))
        if lack.ends_wait(late):
            producer.purge()
            producer.flush(1)  # now each record has its error
            return lack.text(writes=True)
    return ""


def _produce(
    producer: LibrdkafkaProducer,
    topic: str,
    record: _Record,
    on_delivery: Callable[[KafkaError | None, Message], None],
) -> bool:
    """Queue a record; return False if the producer takes none any more. Raises CommandError."""
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                headers=record.headers,
                timestamp=record.timestamp,
                on_delivery=on_delivery,
            )
            producer.poll(0)
            return True
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                return False  # an earlier error, which `_flush` or a report tells
            raise CommandError(not_stored_text(error, topic)) from None


def _records(arguments: argparse.Namespace, lines: IO[bytes]) -> Iterator[_Record]:
    """Return an iterator over the records of the lines; raises CommandError."""
    headers = [
        (name, value.encode()) for name, value in pairs(arguments.header, "--header").items()
    ]
    timestamp = parse_time(arguments.timestamp) if arguments.timestamp else 0
    encode_key, encode_value = encoder(arguments, "key"), encoder(arguments, "value")
    if arguments.json:
        return _json_records(arguments, lines, headers, timestamp, encode_key, encode_value)
    return _line_records(arguments, lines, headers, timestamp, encode_key, encode_value)


def _line_records(
    arguments: argparse.Namespace,
    lines: IO[bytes],
    headers: list[tuple[str, Any]],
    timestamp: int,
    encode_key: Encode,
    encode_value: Encode,
) -> Iterator[_Record]:
    null = arguments.null.encode() if arguments.null is not None else None
    separator = arguments.key_separator.encode() if arguments.key_separator else None
    for line in lines:
        text = line.rstrip(b"\r\n")
        key = arguments.key.encode() if arguments.key is not None else None
        if separator is not None:
            first, found, rest = text.partition(separator)
            if found:
                key, text = first, rest
        written_key = _NONE if key is None else encode_key(key)
        written_value = _NONE if text == null else encode_value(text)
        yield _Record(
            written_key.data,
            written_value.data,
            [*headers, *written_key.headers, *written_value.headers],
            timestamp,
            arguments.partition,
        )


def _json_records(
    arguments: argparse.Namespace,
    lines: IO[bytes],
    headers: list[tuple[str, Any]],
    timestamp: int,
    encode_key: Encode,
    encode_value: Encode,
) -> Iterator[_Record]:
    decode = msgspec.json.Decoder(_JsonRecord).decode
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = decode(line)
        except MALFORMED as error:
            raise CommandError(f"line {number}: {error}") from None
        key, value = _encoded(record.key, encode_key), _encoded(record.value, encode_value)
        yield _Record(
            key.data,
            value.data,
            [*headers, *record.headers.items(), *key.headers, *value.headers],
            timestamp or record.timestamp,
            arguments.partition,
        )


def _encoded(member: msgspec.Raw, encode: Encode) -> Serialized:
    """Return a member's bytes: a string as its text, null as None, anything else as its JSON."""
    text = bytes(member)
    if text == b"null":
        return _NONE
    if text.startswith(b'"') and encode is as_text:
        return Serialized(msgspec.json.decode(text, type=str).encode())
    if text.startswith(b'"'):
        try:
            return encode(text)
        except CommandError:
            # Hexadecimal and base64 are given as JSON strings.
            return encode(msgspec.json.decode(text, type=str).encode())
    return encode(text)
