"""`waylog dead-letters`: shows records that could not be processed, and sends them again."""

from __future__ import annotations

import argparse
import base64
import heapq
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaException

from waylog.administration.dead_letter_replay import Replay
from waylog.administration.log_access import partitions_of
from waylog.administration.offsets import WHERE_HELP, find_offset
from waylog.administration.range_reading import open_log, read_ranges
from waylog.administration.value_text import hex_dump, readable_text
from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.config import ConfigError
from waylog.console.common import access_of, add_bootstrap, add_json, connect, count, print_rows
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.dead_letters import DeadLetter, RecordPlace, parse_place, read_dead_letter
from waylog.kafka.errors import error_text
from waylog.kafka.ranges.log_ranges import LogRanges, Range
from waylog.kafka.topics import ERROR
from waylog.observability.log_lines import one_line

_EXAMPLES: Final = """examples:
  waylog dead-letters list                                 the newest of topic error
  waylog dead-letters list --from 2h --source resolver --reason 'not a fix'
  waylog dead-letters list connect-errors --origin location --json
  waylog dead-letters show error:0:120                     headers, reason and all bytes
  waylog dead-letters replay error:0:120 error:0:121       to the topic that they come from
  waylog dead-letters replay error --source resolver --from 2h --dry-run
  waylog dead-letters replay connect-errors --all --to location-retry
"""

#: A row of the table has so much of a reason; `show` and --json have all of it.
_REASON_CHARACTERS: Final = 100
#: A table shows so many, the newest ones.
_ROWS: Final = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog dead-letters`."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="which records could not be processed, and why")
    show = actions.add_parser("show", help="all that is known of one, with its bytes")
    replay = actions.add_parser("replay", help="send records again to the topic they come from")
    listing.add_argument("topic", nargs="?", default=ERROR, help="default: %(default)s")
    listing.add_argument(
        "--max",
        type=count,
        default=None,
        metavar="N",
        help="the newest N (default 100; --json all)",
    )
    show.add_argument("place", metavar="TOPIC:PARTITION:OFFSET")
    replay.add_argument(
        "what",
        nargs="+",
        metavar="TOPIC|PLACE",
        help="a topic, of which the options choose records, or TOPIC:PARTITION:OFFSET ...",
    )
    for each in (listing, replay):
        chosen = each.add_argument_group("which records")
        chosen.add_argument("--from", dest="start", metavar="WHERE", help=WHERE_HELP)
        chosen.add_argument("--until", metavar="WHERE", help="default: end")
        chosen.add_argument("--reason", metavar="TEXT", help="the reason has this text")
        chosen.add_argument("--source", metavar="NAME", help="refused by this format or program")
        chosen.add_argument("--origin", metavar="TOPIC", help="read from this topic")
        chosen.add_argument("--device", metavar="USER/DEVICE", help="of this device (Connect: key)")
    replay.add_argument("--all", action="store_true", help="all records of the topic")
    replay.add_argument("--to", metavar="TOPIC", help="instead of the topic they come from")
    replay.add_argument(
        "--again", action="store_true", help="also records that were sent again before"
    )
    replay.add_argument("--dry-run", action="store_true", help="show what would be sent")
    for each in (listing, show, replay):
        add_json(each)
        add_bootstrap(each)


def run(arguments: argparse.Namespace) -> int:
    """Run one of the actions; return the exit status."""
    actions = {"list": _list, "show": _show, "replay": _replay}
    places = _places(arguments)
    connect(arguments)
    try:
        return actions[arguments.action](arguments, places)
    except KafkaException as error:
        raise CommandError(error_text(error)) from None
    except LogUnreachable as error:
        raise CommandError(str(error)) from None


def _places(arguments: argparse.Namespace) -> list[RecordPlace]:
    """Return the places that are named; sets the topic. Raises ConfigError for wrong options."""
    if arguments.action == "list":
        return []
    words = [arguments.place] if arguments.action == "show" else arguments.what
    places = [place for word in words if (place := parse_place(word)) is not None]
    if arguments.action == "show" and not places:
        raise ConfigError(f"{words[0]}: TOPIC:PARTITION:OFFSET is expected, as `list` prints it")
    if places and len(places) < len(words):
        raise ConfigError("either one topic or places TOPIC:PARTITION:OFFSET are expected")
    names = {place.topic for place in places} or set(words)
    if len(names) > 1:
        raise ConfigError("one topic at a time")
    arguments.topic = names.pop()
    if arguments.action == "replay":
        filters = [
            arguments.start, arguments.until, arguments.reason,
            arguments.source, arguments.origin, arguments.device,
        ]  # fmt: skip
        is_chosen = arguments.all or any(each is not None for each in filters)
        if places and is_chosen:
            raise ConfigError("places go without --all and without options that choose records")
        if not places and not is_chosen:
            raise ConfigError(
                "which records? --reason, --source, --origin, --device, --from or --until choose "
                "some, --all sends all of the topic"
            )
    return places


def _letters(
    log: LogRanges, arguments: argparse.Namespace, places: Sequence[RecordPlace]
) -> Iterator[DeadLetter]:
    """Yield the dead letters that were asked for; raises KafkaException and CommandError."""
    existing = partitions_of(log.consumer, arguments.topic)
    if places:
        for place in places:
            if place.partition not in existing:
                raise CommandError(f"topic {place.topic} has no partition {place.partition}")
            range_ = {place.partition: Range(place.offset, place.offset + 1)}
            found = list(read_ranges(access_of(arguments), log, arguments.topic, range_))
            if not found:
                raise CommandError(f"there is no record {place}; it may be too old")
            yield read_dead_letter(found[0])
        return
    ranges = {}
    for partition in existing:
        start, end = (
            find_offset(access_of(arguments), log.consumer, arguments.topic, partition, where)
            for where in (arguments.start or "beginning", arguments.until or "end")
        )
        ranges[partition] = Range(start, end)
    for record in read_ranges(access_of(arguments), log, arguments.topic, ranges):
        letter = read_dead_letter(record)
        if _is_chosen(letter, arguments):
            yield letter


def _is_chosen(letter: DeadLetter, arguments: argparse.Namespace) -> bool:
    origin = None if letter.origin is None else letter.origin.topic
    return (
        (arguments.reason is None or arguments.reason.casefold() in letter.reason.casefold())
        and arguments.source in (None, letter.source)
        and arguments.origin in (None, origin)
        and arguments.device in (None, letter.device)
    )


def _list(arguments: argparse.Namespace, places: Sequence[RecordPlace]) -> int:
    log = open_log(access_of(arguments))
    try:
        letters = _letters(log, arguments, places)
        if arguments.json and arguments.max is None:
            for letter in letters:
                print_rows([_row(letter)], as_json=True)
            return EXIT_DONE
        newest = heapq.nlargest(arguments.max or _ROWS, letters, key=lambda each: each.time)
    finally:
        log.close()
    rows = [_row(letter) for letter in reversed(newest)]
    if not arguments.json:
        for row in rows:
            row["time"] = _moment(row["time"])
            row["reason"] = one_line(row["reason"])[:_REASON_CHARACTERS]
            row["device"] = one_line(row["device"] or "")
    print_rows(rows, as_json=arguments.json)
    return EXIT_DONE


def _row(letter: DeadLetter) -> dict[str, Any]:
    return {
        "place": str(letter.place),
        "time": letter.time,
        "source": letter.source,
        "origin": None if letter.origin is None else str(letter.origin),
        "device": letter.device,
        "bytes": len(letter.value or b""),
        "reason": letter.reason,
    }


def _show(arguments: argparse.Namespace, places: Sequence[RecordPlace]) -> int:
    log = open_log(access_of(arguments))
    try:
        [letter] = _letters(log, arguments, places)
    finally:
        log.close()
    value = letter.value or b""
    text = readable_text(value)
    headers = {
        name: each.decode("utf-8", "replace") if isinstance(each, bytes) else each
        for name, each in letter.headers
    }
    row = _row(letter) | {"headers": headers, "whole": letter.is_whole}
    if arguments.json:
        row |= {"value": text, "value_base64": base64.b64encode(value).decode()}
        print_rows([row], as_json=True)
        return EXIT_DONE
    row["time"] = _moment(letter.time)
    for name, each in row.items():
        shown = msgspec.json.encode(each).decode() if isinstance(each, dict) else str(each)
        sys.stdout.write(f"{name:8} {one_line(shown)}\n")
    sys.stdout.write("\n" + (text if text is not None else hex_dump(value)) + "\n")
    return EXIT_DONE


def _moment(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


def _replay(arguments: argparse.Namespace, places: Sequence[RecordPlace]) -> int:
    log = open_log(access_of(arguments))
    counts = {"sent": 0, "left out": 0, "refused": 0}
    try:
        if arguments.to is not None:
            partitions_of(log.consumer, arguments.to)
        with _progress() as advance:
            for outcome in Replay(
                access_of(arguments),
                to=arguments.to,
                again=arguments.again,
                is_dry=arguments.dry_run,
            ).run(_letters(log, arguments, places)):
                if outcome.refused is not None:
                    counts["refused"] += 1
                else:
                    counts["sent" if outcome.skipped is None else "left out"] += 1
                if arguments.json:
                    print_rows([outcome.row()], as_json=True)
                elif arguments.dry_run or outcome.to is None:
                    print(one_line(outcome.text()))
                advance()
    finally:
        log.close()
    if not arguments.json:
        would = "would be sent" if arguments.dry_run else "sent again"
        print(
            f"{counts['sent']} {would}, {counts['left out']} left out, {counts['refused']} refused"
        )
    return EXIT_FAILED if counts["refused"] else EXIT_DONE


@contextmanager
def _progress() -> Iterator[Callable[[], None]]:
    """Show on a terminal how many records are done; give the function to call for each."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("dead letters", total=None)
        yield lambda: progress.advance(task)
