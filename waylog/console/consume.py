"""`waylog consume`: prints the records of a topic as lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from waylog.administration.answers import Silence
from waylog.administration.log_access import partitions_of
from waylog.administration.offsets import WHERE_HELP, find_offset, is_offset, watermarks
from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.config import ConfigError
from waylog.console.common import access_of, add_bootstrap, connect, count, security, shown_json
from waylog.console.formats import Decode, add_formats, decoder, line_format
from waylog.console.share_groups import consume_shared
from waylog.kafka.errors import error_text
from waylog.kafka.group_membership import leave_group
from waylog.kafka.polling import next_messages
from waylog.kafka.record_headers import headers_of
from waylog.malformed import MALFORMED
from waylog.observability.log_lines import one_line
from waylog.sealing.sealing import opener, opener_if_configured
from waylog.serialization.json_numbers import json_bytes
from waylog.serialization.serializer import SerializationError

#: The values of --from that a group may have, and the `auto.offset.reset` they stand for.
_FIRST: Final = {
    "beginning": "earliest",
    "earliest": "earliest",
    "end": "latest",
    "latest": "latest",
}

_NO_GROUP_RIGHT: Final = KafkaError.GROUP_AUTHORIZATION_FAILED

_EXAMPLES: Final = """examples:
  waylog consume location                             what comes from now on
  waylog consume location --from beginning --max 10 --json
  waylog consume address --from 2026-11-21T08:00:00 --exit
  waylog consume location --from 2h --until 1h        one hour of yesterday's log would be 25h, 24h
  waylog consume error --partition 0 --from 120 --key
  waylog consume location --from -5 --exit --format '%p/%o %T %k: %s\\n'
  waylog consume trips --from beginning --exit --value-format avro --value-schema trip.avsc
  waylog consume trips --value-format avro --schema-registry http://127.0.0.1:8081
  waylog consume trips --group readers                share the topic, commit what was printed
  waylog consume jobs --share workers                 each record goes to one member of the group
  waylog consume trips --from beginning --exit --json | waylog produce copy --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog consume`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("topic")
    parser.add_argument("--from", dest="start", metavar="WHERE", help=f"{WHERE_HELP} (default end)")
    parser.add_argument("--until", metavar="WHERE", help="stop there, in each partition")
    parser.add_argument("--partition", type=int, action="append", metavar="N", help="default: all")
    parser.add_argument("--max", type=count, metavar="N", help="stop after N records")
    parser.add_argument("--exit", action="store_true", help="stop at the present end")
    parser.add_argument(
        "--group",
        metavar="NAME",
        help="be a member of this group: begin where it has come to, commit what was printed",
    )
    parser.add_argument(
        "--share",
        metavar="NAME",
        help="be a member of this share group (Kafka 4): accept what was printed",
    )
    parser.add_argument(
        "--uncommitted", action="store_true", help="also records of transactions that are open"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--key", action="store_true", help="print the key before the value")
    output.add_argument(
        "--key-separator", default="\t", metavar="TEXT", help="between key and value (default tab)"
    )
    output.add_argument(
        "--format",
        metavar="TEXT",
        help="%%t topic, %%p partition, %%o offset, %%T timestamp, %%k key, %%s value, "
        "%%h headers, %%K %%S lengths of key and value; \\n \\t",
    )
    output.add_argument(
        "--json", action="store_true", help="everything about a record as one JSON object a line"
    )
    add_formats(parser)
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print records until the requested end or Ctrl-C; return the exit status.

    A record that is not of its format is told on standard error, and the next one comes; then the
    status is 1.
    """
    line = _Lines(_line(arguments))
    _check(arguments)
    connect(arguments)
    if arguments.share is not None:
        return _run_shared(arguments, line)
    isolation = "read_uncommitted" if arguments.uncommitted else "read_committed"
    consumer = access_of(arguments).open_consumer(
        arguments.group or "waylog-consume",
        isolation_level=isolation,
        auto_offset_reset=_FIRST.get(arguments.start, "earliest"),
    )
    try:
        if arguments.group is not None:
            partitions_of(consumer, arguments.topic)
            consumer.subscribe([arguments.topic])
            ends = None
        else:
            ends = _assign(consumer, arguments)
        _print_records(consumer, arguments, ends, line)
    except KafkaException as error:
        if error.args[0].code() == _NO_GROUP_RIGHT:
            raise CommandError(
                f"this user may not be a member of group {arguments.group}: the right READ on the "
                "group is missing"
            ) from None
        where = error.where if isinstance(error, _Unreadable) else ""
        raise CommandError(f"{where}{error_text(error)}") from None
    except KeyboardInterrupt:
        pass  # the usual way to end it
    finally:
        if arguments.group is not None:
            leave_group(consumer)
        else:
            consumer.close()
    return EXIT_FAILED if line.unreadable else EXIT_DONE


def _check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for options that would be ignored together."""
    places = ("partition", "exit", "until")
    if arguments.group is not None:
        if given := [f"--{name}" for name in places if getattr(arguments, name)]:
            raise ConfigError(f"--group shares all partitions: it goes without {', '.join(given)}")
        if arguments.start not in (None, *_FIRST):
            raise ConfigError(
                "--group begins where it has come to; --from is beginning or end, for a group that "
                "is new (`waylog groups reset` sets offsets)"
            )
    if arguments.share is not None:
        names = ("group", *places, "uncommitted")
        given = [f"--{name}" for name in names if getattr(arguments, name)]
        given += [] if arguments.start is None else ["--from"]
        if given:
            raise ConfigError(
                f"--share shares records: it goes without {', '.join(given)}; where a share group "
                "begins is the group's setting share.auto.offset.reset"
            )


class _Lines:
    """Makes lines of records, none of one that cannot be read."""

    def __init__(self, line: Callable[[Message], bytes]) -> None:
        self._line: Final = line
        #: Records that could not be read.
        self.unreadable = 0

    def __call__(self, message: Message) -> bytes:
        try:
            return self._line(message)
        except SerializationError as error:
            self.unreadable += 1
            print(f"waylog consume: {_where(message)}{error}", file=sys.stderr)
            return b""


def _run_shared(arguments: argparse.Namespace, line: _Lines) -> int:
    consumer = access_of(arguments).open_consumer()
    try:
        partitions_of(consumer, arguments.topic)
    finally:
        consumer.close()
    try:
        consume_shared(arguments, line)
    except KafkaException as error:
        raise CommandError(error_text(error)) from None
    except KeyboardInterrupt:
        pass  # the usual way to end it
    return EXIT_FAILED if line.unreadable else EXIT_DONE


def _assign(consumer: Consumer, arguments: argparse.Namespace) -> dict[int, int] | None:
    """Assign the partitions at their start offsets.

    Returns the end offsets that are not reached yet, None to go on for ever.
    """
    topic: str = arguments.topic
    existing = partitions_of(consumer, topic)
    partitions = arguments.partition or existing
    unknown = set(partitions) - set(existing)
    if unknown:
        raise CommandError(f"topic {topic} has no partition {min(unknown)}")
    assignment = []
    ends = {}
    if arguments.start and is_offset(arguments.start):
        _check_range(consumer, arguments, partitions)
    for number in partitions:
        start = find_offset(access_of(arguments), consumer, topic, number, arguments.start or "end")
        end = find_offset(access_of(arguments), consumer, topic, number, arguments.until or "end")
        if start < end:
            ends[number] = end
        if start < end or not arguments.until:
            assignment.append(TopicPartition(topic, number, start))
    consumer.assign(assignment)
    return ends if arguments.exit or arguments.until else None


def _check_range(
    consumer: Consumer, arguments: argparse.Namespace, partitions: Sequence[int]
) -> None:
    """Raise CommandError if the offset of --from is beyond the end of each partition."""
    ends = {
        number: watermarks(access_of(arguments), consumer, arguments.topic, number)[1]
        for number in partitions
    }
    if all(int(arguments.start) > end for end in ends.values()):
        number, end = max(ends.items(), key=lambda item: item[1])
        raise CommandError(
            f"--from {arguments.start} is out of range: {arguments.topic}:{number} ends at offset "
            f"{end}"
        )


def _print_records(
    consumer: Consumer,
    arguments: argparse.Namespace,
    ends: dict[int, int] | None,
    line: Callable[[Message], bytes],
) -> None:
    """Print until all `ends` are reached, or for ever if `ends` is None."""
    printed = 0
    servers = arguments.bootstrap_servers
    # Sealed values may be looked at as they are, but not count as consumed.
    opened = (
        opener_if_configured(servers) or list
        if arguments.group is None
        else opener(servers, properties=security(arguments))
    )
    until = dict(ends or {})
    silence = Silence(access_of(arguments), arguments.topic)
    while ends is None or ends:
        messages = next_messages(consumer, 500, 0.2)
        if messages:
            silence.ended()
        elif ends or not consumer.assignment():
            # Without `ends` it is usual that nothing comes.
            silence.check(brokers_matter=bool(ends))
        for message in opened(messages):
            if (error := message.error()) is not None:
                if arguments.group is None and error.code() == _NO_GROUP_RIGHT:
                    # librdkafka looks for the coordinator of a group even if it needs none.
                    continue
                raise _Unreadable(_where(message), error)
            if arguments.until and _offset(message) >= until.get(_partition(message), 0):
                continue
            sys.stdout.buffer.write(line(message))
            printed += 1
            if arguments.group is not None:
                consumer.store_offsets(message)
            if arguments.max is not None and printed >= arguments.max:
                break
        sys.stdout.flush()
        if arguments.group is not None and messages:
            _commit(consumer)
        if arguments.max is not None and printed >= arguments.max:
            return
        if ends:
            positions = [TopicPartition(arguments.topic, number) for number in ends]
            for position in consumer.position(positions):
                if position.offset >= ends[position.partition]:
                    del ends[position.partition]


class _Unreadable(KafkaException):
    """The error that came instead of a record, and the record's place as far as it is known."""

    def __init__(self, where: str, error: KafkaError) -> None:
        super().__init__(error)
        self.where = where


def _where(message: Message) -> str:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or partition < 0:
        return ""
    at = f" at offset {offset}" if offset is not None and offset >= 0 else ""
    return f"{topic}:{partition}{at}: "


def _offset(message: Message) -> int:
    return message.offset() or 0


def _partition(message: Message) -> int:
    return message.partition() or 0


def _commit(consumer: Consumer) -> None:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        # After a rebalance another member prints these again: delivery is at least once.
        if not error.args[0].retriable() and error.args[0].name() != "_NO_OFFSET":
            raise


def _line(arguments: argparse.Namespace) -> Callable[[Message], bytes]:
    """Return the function that formats a record; raises CommandError."""
    if arguments.format is not None:
        return line_format(arguments.format)
    key_of, value_of = decoder(arguments, "key"), decoder(arguments, "value")
    if arguments.json:
        # A value that is JSON is shown as JSON even in text format; other text stays text.
        show: Decode = _json_or_text if arguments.value_format == "text" else value_of
        if sys.stdout.isatty():
            return lambda message: (
                shown_json(_json_line(message, key_of, show)[:-1].decode()).encode() + b"\n"
            )
        return lambda message: _json_line(message, key_of, show)
    separator: bytes = arguments.key_separator.encode()

    def line(message: Message) -> bytes:
        value = _shown(message.value(), value_of, arguments.value_format, message)
        if arguments.key:
            key = _shown(message.key(), key_of, arguments.key_format, message)
            return key + separator + value + b"\n"
        return value + b"\n"

    if sys.stdout.isatty():
        return lambda message: _for_terminal(line(message))
    return line


def _for_terminal(data: bytes) -> bytes:
    """Return text that cannot move a terminal's cursor or hide letters, whoever wrote it."""
    lines = data.decode("utf-8", "backslashreplace").split("\n")
    return "\n".join("\t".join(map(one_line, each.split("\t"))) for each in lines).encode()


def _shown(data: bytes | str | None, decode: Decode, kind: str, message: Message) -> bytes:
    if data is None:
        return b""
    raw = data.encode() if isinstance(data, str) else data
    if kind == "text":
        return raw
    decoded = decode(raw, message)
    if isinstance(decoded, str) and kind != "json":
        return decoded.encode()
    return json_bytes(decoded)


def _json_line(message: Message, key_of: Decode, value_of: Decode) -> bytes:
    key, value = message.key(), message.value()
    record: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _read(key, key_of, message),
        "value": _read(value, value_of, message),
        "headers": {
            name: None if item is None else item.decode("utf-8", "replace")
            for name, item in headers_of(message)
        },
    }
    return json_bytes(record) + b"\n"


def _read(data: bytes | str | None, read: Decode, message: Message) -> Any:
    if data is None:
        return None
    return read(data if isinstance(data, bytes) else data.encode(), message)


def _json_or_text(data: bytes, _message: Message) -> Any:
    try:
        return msgspec.json.decode(data)
    except MALFORMED:
        return data.decode("utf-8", "replace")
