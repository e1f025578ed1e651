"""`waylog resolver --from-...` and `waylog resolver compare`: try an index before it is used."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from geoservice.commands.command import check_index, open_geocoder
from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.config import DEFAULT_BOOTSTRAP_SERVERS, ConfigError, check_bootstrap_servers
from waylog.topic_names import TOPIC_NAME_RULE, is_topic_name

_COMPARE_EXAMPLES: Final = """examples:
  waylog resolver compare --index new.geo          look every device's newest fix up in new.geo
  waylog resolver compare --topic address-1f2e3d   with what a re-resolve has written
  waylog resolver compare --index new.geo --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that make `waylog resolver` resolve again."""
    group = parser.add_argument_group(
        "resolving again",
        "read `location` again up to its end and write the addresses out of --index to a topic of "
        "their own; the resolver at work is not disturbed, and a second run goes on where the "
        "first one stopped",
    )
    start = group.add_mutually_exclusive_group()
    start.add_argument("--from-earliest", action="store_true", help="from the oldest fix")
    start.add_argument("--from-offset", type=int, metavar="N", help="in each partition")
    start.add_argument(
        "--from-date", metavar="DATE", help="as 2026-05-01 or 2026-05-01T12:00+02:00 (else UTC)"
    )
    group.add_argument(
        "--topic", metavar="NAME", help="where to write (default address-VERSION of the index)"
    )
    group.add_argument(
        "--restart", action="store_true", help="begin again, however far an earlier run came"
    )
    group.add_argument("--json", action="store_true", help="the outcome for programs")


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Add the action `compare`."""
    actions = parser.add_subparsers(dest="action", metavar="compare", required=False)
    compare = actions.add_parser(
        "compare",
        help="what would change with another index?",
        description="How many devices' newest addresses would differ with another index, by "
        "member, with examples. Nothing is written.",
        epilog=_COMPARE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    compare.add_argument(
        "--bootstrap-servers",
        # Keeps the value of the resolver's own option, given before the word `compare`.
        default=argparse.SUPPRESS,
        metavar="LIST",
        help=f"Kafka brokers (default {DEFAULT_BOOTSTRAP_SERVERS})",
    )
    other = compare.add_mutually_exclusive_group(required=True)
    other.add_argument("--index", "--geo", type=Path, metavar="INDEX", help="the other index")
    other.add_argument("--topic", metavar="NAME", help="addresses that a re-resolve has written")
    compare.add_argument(
        "--examples", type=int, default=20, metavar="N", help="at most (default %(default)s)"
    )
    compare.add_argument("--json", action="store_true", help="for programs")


def is_re_resolve(arguments: argparse.Namespace) -> bool:
    """Return whether one of the options --from-... was given."""
    return bool(
        arguments.from_earliest
        or arguments.from_offset is not None
        or arguments.from_date is not None
    )


def check_unused(arguments: argparse.Namespace) -> None:
    """Raise ConfigError if the resolver at work is given options of a re-resolve."""
    for option in ("topic", "restart", "json"):
        if getattr(arguments, option):
            raise ConfigError(
                f"--{option} is for resolving again: it needs --from-earliest, --from-offset or "
                "--from-date"
            )


def _check_log(bootstrap_servers: str) -> None:
    """Raise ConfigError or CommandError unless a Kafka cluster answers there."""
    from waylog.kafka.clients import LogUnreachable
    from waylog.kafka.reach import connect_admin

    try:
        connect_admin(bootstrap_servers, client_id="waylog-resolver")
    except LogUnreachable as error:
        raise CommandError(str(error)) from None


def re_resolve(arguments: argparse.Namespace) -> int:
    """Resolve again, up to the end of the log; return the exit status."""
    import msgspec
    from confluent_kafka import KafkaException

    from consumers.resolver.re_resolve import ReResolveFailed, ReResolver, Start
    from waylog.kafka.clients import LogUnreachable
    from waylog.process.stop_signals import on_stop_signal

    if arguments.from_offset is not None and arguments.from_offset < 0:
        raise ConfigError("--from-offset must be at least 0")
    if arguments.topic is not None:
        _check_topic(arguments.topic)
    for option, given in (("--renew", arguments.renew), ("--fallback", arguments.fallback)):
        if given:
            raise ConfigError(f"{option} is for the resolver at work, not for resolving again")
    time_ms = None if arguments.from_date is None else _time_ms(arguments.from_date)
    check_bootstrap_servers(arguments.bootstrap_servers)
    check_index(arguments.geo)
    geocoder = open_geocoder(arguments.geo)
    _check_log(arguments.bootstrap_servers)
    with _progress("resolving") as progress:
        try:
            run = ReResolver(
                arguments.bootstrap_servers,
                geocoder,
                Start(arguments.from_offset, time_ms),
                topic=arguments.topic,
                restart=arguments.restart,
                progress=progress,
            )
            on_stop_signal(run.stop)
            done = run.run()
        except (ReResolveFailed, LogUnreachable) as error:
            raise CommandError(str(error)) from None
        except KafkaException as error:
            raise CommandError(error.args[0].str()) from None
    if arguments.json:
        print(msgspec.json.encode(done).decode())
    else:
        print(
            f"{done.topic}: {done.records:,} records, {done.addresses:,} addresses of "
            f"{done.devices:,} devices with index {done.index_version}"
            + (", going on after an earlier run" if done.resumed else "")
        )
        if done.finished:
            print(f"now: waylog resolver compare --topic {done.topic}")
    if not done.finished:
        print("stopped; the same command goes on from here", file=sys.stderr)
    return EXIT_DONE if done.finished else EXIT_FAILED


def compare(arguments: argparse.Namespace) -> int:
    """Print how addresses would change with another index; return the exit status."""
    import msgspec
    from confluent_kafka import KafkaException

    from consumers.resolver.comparison import Comparison, ComparisonFailed
    from consumers.resolver.comparison import compare as compare_topic

    if arguments.examples < 0:
        raise ConfigError("--examples is at least 0")
    if arguments.topic is not None:
        _check_topic(arguments.topic)
    check_bootstrap_servers(arguments.bootstrap_servers)
    check_index(arguments.index)
    other = arguments.topic or open_geocoder(arguments.index)
    _check_log(arguments.bootstrap_servers)
    with _progress("comparing") as progress:
        try:
            comparison: Comparison = compare_topic(
                arguments.bootstrap_servers,
                other,
                examples_max=arguments.examples,
                progress=progress,
            )
        except ComparisonFailed as error:
            raise CommandError(str(error)) from None
        except KafkaException as error:
            raise CommandError(error.args[0].str()) from None
    if arguments.json:
        print(msgspec.json.encode(comparison).decode())
        return EXIT_DONE
    for line in _lines(comparison):
        print(line)
    return EXIT_DONE


def _lines(comparison: Any) -> Iterator[str]:
    """Yield the outcome as lines of text."""
    yield (
        f"{comparison.compared:,} devices compared: {comparison.same:,} same, "
        f"{comparison.different:,} different"
    )
    if comparison.other_fix:
        yield f"{comparison.other_fix:,} not compared: one of the two knows a newer fix"
    if comparison.missing:
        yield f"{comparison.missing:,} without an address to compare with"
    for title, versions in (("index now", comparison.before), ("index then", comparison.after)):
        named = (f"{version or '?'} ({count:,})" for version, count in versions.items())
        yield f"{title}: {', '.join(named) or 'none'}"
    if comparison.members:
        width = max(map(len, comparison.members))
        yield f"{'member':{width}} {'differ':>9} {'changed':>9} {'added':>9} {'removed':>9}"
        ordered = sorted(comparison.members.items(), key=lambda item: (-item[1].total, item[0]))
        for name, member in ordered:
            share = 100 * member.total / comparison.compared
            yield (
                f"{name:{width}} {share:8.2f}% {member.changed:9,} {member.added:9,} "
                f"{member.removed:9,}"
            )
    for example in comparison.examples:
        yield f"{example.device} ({', '.join(example.members)})"
        yield f"  now   {example.before}"
        yield f"  then  {example.after}"


def _check_topic(name: str) -> None:
    if not is_topic_name(name):
        raise ConfigError(f"--topic {name!r}: {TOPIC_NAME_RULE}")


def _time_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--from-date: {text!r} is not a date as 2026-05-01") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
