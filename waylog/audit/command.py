"""`waylog audit`: tells where the fixes of a device or of a day are."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waylog.audit.days import Day, parse_day
from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.config import (
    ARROW_MEMORY_POOL,
    ConfigError,
    DataDirectory,
    check_name,
    find_history,
)
from waylog.console.common import add_bootstrap, security
from waylog.forwarding.definition import GROUP

if TYPE_CHECKING:
    from waylog.audit.audit import Audit, Auditor
    from waylog.audit.history_rows import HistoryRows
    from waylog.audit.question import Progress

#: Characters that the gateway replaces in names of devices (docs/http.md).
_NEVER_IN_NAMES: Final = re.compile(r"[ +#\x00-\x1f\x7f-\x9f]")

_EXAMPLES: Final = """examples:
  waylog audit device demo/phone                       today, until now
  waylog audit device demo/phone --day 2026-11-27 --timezone Europe/Vaduz
  waylog audit day yesterday                           all devices; what is not where it should be
  waylog audit day yesterday --json | jq 'select(.lacking > 0)'
  waylog audit day --dead-letters sink-errors --ignore connect-old
  waylog audit fix 019c40a1b2c3d4e5f60718af            where this one fix is

The day is that of arrival. The exit status is 1 if a fix is missing where it should be: in the
history, at a connector or at the resolver, or if the history cannot be read.
"""
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: A fix may arrive a little before the time that its device's clock tells.
_CLOCK_AHEAD_MS: Final = 10 * 60 * 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog audit`."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    device = _action(actions, "device", "the receipt of a device for a day")
    device.add_argument("device", metavar="USER/DEVICE")
    device.add_argument("--day", default="today", metavar="D", help="YYYY-MM-DD, today, yesterday")
    device.add_argument(
        "--all-partitions",
        action="store_true",
        help="read all partitions however much that is: where some were added that day",
    )
    day = _action(actions, "day", "the receipts of all devices for a day")
    day.add_argument(
        "day",
        nargs="?",
        default="today",
        metavar="D",
        help="YYYY-MM-DD, today (default), yesterday",
    )
    day.add_argument(
        "--all", action="store_true", help="list all devices, not only those that lack something"
    )
    fix = _action(actions, "fix", "where one fix is")
    fix.add_argument("id")
    fix.add_argument("--device", metavar="USER/DEVICE", help="whose it is, to read less")
    fix.add_argument(
        "--day",
        metavar="D",
        help="the day of its arrival; default: from the time in its id until now",
    )


def _action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=summary,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--timezone", default="UTC", metavar="ZONE", help="of the day, as Europe/Vaduz (UTC)")
    add(
        "--history",
        metavar="URL",
        help="the history, as for `waylog history run` (default: that of the data folder, if any)",
    )
    add(
        "--late",
        type=_seconds,
        default=3600,
        metavar="TIME",
        help="what a reader has not got so long after it arrived is missing: 90s, 15m, 1h (1h)",
    )
    add(
        "--resolver-group",
        default="resolver",
        metavar="NAME",
        help="consumer group of the resolvers (default: %(default)s)",
    )
    add(
        "--forwarding-group",
        default=GROUP,
        metavar="NAME",
        help="consumer group of `waylog forwarding run` (default: %(default)s)",
    )
    add(
        "--expect",
        action="append",
        default=[],
        metavar="GROUP",
        help="a consumer group that has to have everything too, besides resolver and connectors",
    )
    add(
        "--ignore",
        action="append",
        default=[],
        metavar="GROUP",
        help="a reader whose lag does not matter, for example connect-NAME or history",
    )
    add(
        "--dead-letters",
        action="append",
        default=[],
        metavar="TOPIC",
        help="topic of a connector's dead letters",
    )
    add("--json", action="store_true", help="one JSON object a line")
    add_bootstrap(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Print receipts; return 1 if a fix is missing where it should be."""
    os.environ.setdefault(*ARROW_MEMORY_POOL)
    from waylog.audit.audit import Auditor, NothingToAudit
    from waylog.audit.log_reader import LogReader
    from waylog.history.history_reader import HistoryUnreadable
    from waylog.kafka.clients import LogUnreachable

    now_ms = time.time_ns() // 1_000_000
    _check(arguments)
    day = _day(arguments, now_ms)
    history = _history(arguments)
    actions = {"device": _device, "day": _all_devices, "fix": _fix}
    try:
        log = LogReader(arguments.bootstrap_servers, security(arguments))
        try:
            with _progress() as progress:
                auditor = Auditor(log, history, now_ms, progress=progress)
                return actions[arguments.action](auditor, arguments, day)
        finally:
            log.close()
    except (HistoryUnreadable, LogUnreachable, NothingToAudit) as error:
        raise CommandError(str(error)) from None


def _check(arguments: argparse.Namespace) -> None:
    check_name("--resolver-group", arguments.resolver_group)
    check_name("--forwarding-group", arguments.forwarding_group)
    device = getattr(arguments, "device", None)
    if device is None:
        return
    if not re.fullmatch(r"[^/]+/[^/]+", device):
        raise ConfigError(f"{device!r} is not a device: USER/DEVICE is expected, as demo/phone")
    if (stored := _NEVER_IN_NAMES.sub("_", device)) != device:
        # Others than the gateway may write such names, so they are looked for all the same.
        print(f"note: the gateway stores {device!r} as {stored!r}", file=sys.stderr)


def _day(arguments: argparse.Namespace, now_ms: int) -> Day:
    from waylog.audit.audit import time_in_id

    if arguments.day is not None:
        return parse_day(arguments.day, arguments.timezone, now_ms)
    time_ms = time_in_id(arguments.id)
    if time_ms is None:
        raise ConfigError(
            f"{arguments.id!r} does not tell a time, as ids of Waylog's do: name the day of its "
            "arrival with --day"
        )
    today = parse_day("today", arguments.timezone, now_ms)
    from_ms = min(time_ms, now_ms) - _CLOCK_AHEAD_MS
    return today._replace(from_ms=from_ms, to_ms=now_ms + _CLOCK_AHEAD_MS)


def _history(arguments: argparse.Namespace) -> HistoryRows | None:
    from waylog.audit.history_rows import HistoryRows

    url = arguments.history
    if url is None:
        url = find_history(DataDirectory.default())
        if url is None:
            return None
    elif "://" not in url and not Path(url).is_dir():
        raise ConfigError(f"--history {url}: there is no such folder")
    return HistoryRows(url)


def _ask(auditor: Auditor, arguments: argparse.Namespace, day: Day, **more: Any) -> Audit:
    from waylog.audit.question import Question

    return auditor.answer(
        Question(
            day,
            late_ms=round(arguments.late * 1000),
            resolver_group=arguments.resolver_group,
            forwarding_group=arguments.forwarding_group,
            expected=frozenset(arguments.expect),
            ignored=frozenset(arguments.ignore),
            dead_letters=tuple(dict.fromkeys(arguments.dead_letters)),
            **more,
        )
    )


def _device(auditor: Auditor, arguments: argparse.Namespace, day: Day) -> int:
    from waylog.audit.report import print_receipt

    device, everywhere = arguments.device, arguments.all_partitions
    audit = _ask(auditor, arguments, day, device=device, all_partitions=everywhere)
    receipt = audit.receipt(device)
    if arguments.json:
        _print_json(receipt)
    else:
        print_receipt(receipt)
    return _status(audit, receipt.lacking)


def _all_devices(auditor: Auditor, arguments: argparse.Namespace, day: Day) -> int:
    from waylog.audit.report import print_day

    audit = _ask(auditor, arguments, day)
    totals = audit.totals()
    if arguments.json:
        for receipt in audit.receipts():
            _print_json(receipt)
        _print_json(totals)
    else:
        print_day(totals, audit.receipts(), every=arguments.all)
    return _status(audit, totals.lacking)


def _fix(auditor: Auditor, arguments: argparse.Namespace, day: Day) -> int:
    from waylog.audit.report import print_fix

    audit = _ask(auditor, arguments, day, device=arguments.device, fix_id=arguments.id)
    if not audit.found:
        whose = "" if arguments.device is None else f" of {arguments.device}"
        raise CommandError(
            f"there is no fix {arguments.id}{whose} in the log or the history of that time: it has "
            "not arrived, was refused (`waylog audit device` tells what was), or arrived on "
            "another day (--day)"
        )
    found = audit.fix_receipt()
    if arguments.json:
        _print_json(found)
    else:
        print_fix(found, day.timezone)
    return _status(audit, found.lacking)


def _status(audit: Audit, lacking: int) -> int:
    return EXIT_FAILED if lacking or audit.is_history_unreadable else EXIT_DONE


def _print_json(value: msgspec.Struct) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: a time as 90s, 15m, 1h or 2d is expected")
    return int(match[1]) * _SECONDS[match[2]]


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show a progress bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        show: Callable[[str, int, int], object] = lambda what, done, total: bar.update(  # noqa: E731
            task, description=what, completed=done, total=total
        )
        yield show
