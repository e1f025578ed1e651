"""Prints receipts for people: sentences and tables, in colours on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.table import Table
from rich.text import Text

from waylog.audit.forwarding_accounts import ForwardingReceipt, ForwardingTotals
from waylog.audit.reasons import ReasonCount
from waylog.audit.receipts import (
    NO_SEQUENCE,
    DayTotals,
    FixReceipt,
    ReaderReceipt,
    Receipt,
    Resolved,
)
from waylog.audit.sequences import Sequence as AppSequence
from waylog.forwarding.definition import GROUP as FORWARDING_GROUP
from waylog.observability.log_lines import one_line

_LABEL: Final = 14
#: A program that reads lines gets each row on one.
_PIPE_COLUMNS: Final = 20_000
_GAPS_SHOWN: Final = 5
_DEVICES_SHOWN: Final = 1_000


def print_receipt(receipt: Receipt) -> None:
    """Print the receipt of a device."""
    console = _console()
    clock = _Clock(receipt.timezone, receipt.day)
    _print(console, _text(f"{receipt.device}, {receipt.day} ({receipt.timezone})", "bold"))
    _line(console, "acknowledged", _acknowledged(receipt, clock))
    if receipt.repeats:
        _line(console, "came again", f"{receipt.repeats:,} records of fixes that came before")
    if receipt.unreadable:
        _line(console, "unreadable", f"{receipt.unreadable:,} records are no fixes")
    for each in receipt.refused:
        _line(console, "refused", f"{each.count:,}: {each.reason}", "yellow")
    _line(console, "sent", _sent(receipt.sequence, are_refused=bool(receipt.refused)))
    _print_readers(console, receipt.readers, clock)
    _line(console, "address", _address(receipt.resolved, clock, missing=receipt.address_missing))
    _line(console, "pushed", _pushed(receipt, clock))
    for forwarding in receipt.forwardings or ():
        _print_forwarding(console, forwarding, clock)
    _end(console, receipt.unknown, receipt.lacking, receipt.readers)


def print_day(totals: DayTotals, receipts: Iterable[Receipt], *, every: bool) -> None:
    """Print the sums of a day, and the devices that lack something, or all."""
    console = _console()
    clock = _Clock(totals.timezone, totals.day)
    _print(console, Text(f"all devices, {totals.day} ({totals.timezone})", "bold"))
    repeats = f", {totals.repeats:,} came again" if totals.repeats else ""
    _line(
        console, "acknowledged", f"{totals.acknowledged:,} fixes of {totals.devices:,} devices"
        f"{repeats}",
    )  # fmt: skip
    if totals.unreadable:
        _line(console, "unreadable", f"{totals.unreadable:,} records are no fixes")
    if totals.refused:
        _line(console, "refused", f"{totals.refused:,} messages, by gateways", "yellow")
    _print_readers(console, totals.readers, clock)
    if totals.addresses_missing:
        _line(console, "address", f"{totals.addresses_missing:,} devices have none", "red")
    if totals.forwardings.forwardings:
        _line(console, "forwarded", _forwarded(totals.forwardings))
    _print_devices(console, receipts, clock, every=every)
    _end(console, totals.unknown, totals.lacking, totals.readers)


def print_fix(receipt: FixReceipt, timezone: str) -> None:
    """Print where a fix is."""
    console = _console()
    clock = _Clock(timezone, "")
    _print(console, _text(f"fix {receipt.id} of {receipt.device}", "bold"))
    _line(console, "made", clock.text(receipt.time))
    _line(console, "received", clock.text(receipt.received))
    places = ", ".join(f"location-{each.partition} at {each.offset}" for each in receipt.places)
    _line(console, "log", places)
    for reader in receipt.readers:
        state, style = _state_of_one(reader)
        reasons = "".join(f": {each.reason}" for each in reader.reasons)
        _line(console, reader.name, f"{state}{reasons}", style)
    _line(console, "address", _address_of_fix(receipt, clock))
    for forwarding in receipt.forwardings or ():
        _print_forwarding_of_fix(console, forwarding, clock)
    _end(console, receipt.unknown, receipt.lacking, receipt.readers)


class _Clock:
    """Writes times in a zone, without the date if that is the day's."""

    def __init__(self, timezone: str, day: str) -> None:
        self._zone = ZoneInfo(timezone)
        self._day = day

    def text(self, time_ms: int | None) -> str:
        if time_ms is None:
            return ""
        try:
            moment = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone(self._zone)
        except (ValueError, OverflowError, OSError):
            return f"{time_ms} ms"  # of no calendar
        date = f"{moment:%Y-%m-%d}"
        return f"{moment:%H:%M:%S}" if date == self._day else f"{date} {moment:%H:%M:%S}"


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, highlight=False)


def _text(text: str, style: str = "") -> Text:
    """Return a text as it is, except what could move a terminal's cursor or hide other letters."""
    return Text(one_line(text), style)


def _print(console: Console, text: Text) -> None:
    console.print(text)


def _line(console: Console, label: str, text: str, style: str = "") -> None:
    # Text, because a string with square brackets would be read as markup.
    console.print(Text.assemble(f"  {label.ljust(_LABEL)} ", (one_line(text), style)))


def _acknowledged(receipt: Receipt, clock: _Clock) -> str:
    if not receipt.acknowledged:
        return "no fix arrived"
    arrived = f"{clock.text(receipt.first_received)} to {clock.text(receipt.last_received)}"
    made = f"made {clock.text(receipt.first_time)} to {clock.text(receipt.last_time)}"
    earlier = f", {receipt.made_earlier:,} before this day" if receipt.made_earlier else ""
    return f"{receipt.acknowledged:,} fixes, received {arrived}, {made}{earlier}"


def _pushed(receipt: Receipt, clock: _Clock) -> str:
    if receipt.pushes is None:
        path = f"/v1/devices/{quote(receipt.device, safe='')}/receipts"
        return f"not known; a running gateway knows what waits: GET {path}"
    if not receipt.pushes:
        return "nothing, as far as gateways have told"
    parts = ", ".join(
        f"{each.count:,} by {_CHANNELS.get(each.channel, each.channel)} up to "
        f"{clock.text(each.last)}"
        for each in receipt.pushes
    )
    return f"{parts}; {receipt.acknowledged:,} fixes came"


#: What sends addresses, in words.
_CHANNELS: Final = {
    "mqtt": "MQTT",
    "card": "OwnTracks card",
    "http": "answers over HTTP",
    "websocket": "WebSocket",
    "sse": "event stream",
}


def _sent(sequence: AppSequence | None, *, are_refused: bool) -> str:
    if sequence is None:
        return NO_SEQUENCE
    text = f"counted {sequence.first:,} to {sequence.last:,}: "
    if sequence.missing:
        gaps = ", ".join(
            str(gap.first) if gap.first == gap.last else f"{gap.first}-{gap.last}"
            for gap in sequence.gaps[:_GAPS_SHOWN]
        )
        more = ", ..." if len(sequence.gaps) > _GAPS_SHOWN else ""
        text += f"{sequence.missing:,} are not in the log ({gaps}{more})"
        text += ", or among the refused" if are_refused else ""
    else:
        text += "none is missing"
    times = "once" if sequence.restarts == 1 else f"{sequence.restarts} times"
    return text + (f"; began again {times}" if sequence.restarts else "")


def _address(resolved: Resolved | None, clock: _Clock, *, missing: bool) -> str:
    if resolved is None:
        return "none, though the resolver has gone past the fixes" if missing else "none yet"
    when = f", resolved {clock.text(resolved.resolved)}" if resolved.resolved else ""
    return f"of the fix of {clock.text(resolved.time)}{when}"


def _address_of_fix(receipt: FixReceipt, clock: _Clock) -> str:
    resolved = receipt.resolved
    if resolved is None:
        return "the device has none"
    if resolved.fix_id == receipt.id:
        return f"resolved {clock.text(resolved.resolved)}"
    return f"the device's newest is of another fix, of {clock.text(resolved.time)}"


def _print_readers(console: Console, readers: Sequence[ReaderReceipt], clock: _Clock) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2))
    table.add_column("  reader", no_wrap=True)
    for name in ("has", "waits", "overdue", "missing", "refused"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("up to", no_wrap=True)
    table.add_column("waits since", no_wrap=True)
    for each in readers:
        is_bad = each.expected and (each.overdue or each.missing or each.refused)
        style = "red" if is_bad else "" if each.expected else "dim"
        has = "?" if each.unknown else f"{each.taken:,}"
        table.add_row(
            _text(f"  {each.name}"),
            *(Text(has), Text(_number(each.pending + each.overdue)), Text(_number(each.overdue))),
            *(Text(_number(each.missing)), Text(_number(each.refused))),
            *(Text(clock.text(each.until)), Text(clock.text(each.since))),
            style=style,
        )
    if readers:
        console.print(table)
    else:
        _line(console, "readers", "no consumer group, and no history", "yellow")
    for each in readers:
        for reason in each.reasons:
            _line(console, "refused", f"by {each.name}: {_counted(reason)}", "yellow")


def _counted(reason: ReasonCount) -> str:
    return f"{reason.count:,}: {reason.reason}"


def _number(count: int) -> str:
    return f"{count:,}" if count else ""


def _print_devices(
    console: Console, receipts: Iterable[Receipt], clock: _Clock, *, every: bool
) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2))
    table.add_column("  device", no_wrap=True)
    for name in ("fixes", "again", "refused", "lacking"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("last", no_wrap=True)
    table.add_column("where", overflow="fold")
    shown = more = 0
    for each in receipts:
        if not (every or each.lacking):
            continue
        if shown >= _DEVICES_SHOWN and not every:
            more += 1
            continue
        shown += 1
        table.add_row(
            _text(f"  {each.device}"),
            *(Text(f"{each.acknowledged:,}"), Text(_number(each.repeats))),
            Text(_number(sum(reason.count for reason in each.refused))),
            Text(_number(each.lacking), "red"),
            Text(clock.text(each.last_received)),
            _text(_where(each)),
        )
    if shown:
        console.print(table)
    if more:
        _line(console, "", f"and {more:,} more devices that lack something; --all lists them")


def _where(receipt: Receipt) -> str:
    parts = [
        f"{each.name} {count:,} {what}"
        for each in receipt.readers
        if each.expected
        for what, count in (
            ("overdue", each.overdue),
            ("missing", each.missing),
            ("refused", each.refused),
        )
        if count
    ]
    return ", ".join([*parts, "no address"] if receipt.address_missing else parts)


def _state_of_one(reader: ReaderReceipt) -> tuple[str, str]:
    bad = "red" if reader.expected else "dim"
    if reader.name == FORWARDING_GROUP and reader.pending + reader.overdue:
        # Its offset is held back by the slowest, whoever's it is.
        return (
            "has not passed it for all users; what was sent is told of each forwarding",
            "yellow",
        )
    for count, text, style in (
        (reader.missing, "is missing", bad),
        (reader.refused, "was refused", bad),
        (reader.overdue, "waits, for too long", bad),
        (reader.pending, "waits", "yellow"),
        (reader.unknown, "is not known", "yellow"),
    ):
        if count:
            return text, style
    return ("has it" if reader.kind == "history" else "has gone past it"), ""


def _print_forwarding(console: Console, forwarding: ForwardingReceipt, clock: _Clock) -> None:
    counts = [
        f"{count:,} {what}"
        for count, what in (
            (forwarding.sent, f"sent up to {clock.text(forwarding.until)}"),
            (forwarding.waiting, f"waiting since {clock.text(forwarding.since)}"),
            (forwarding.refused, "refused"),
            (forwarding.missed, "deleted before they could be sent"),
            (forwarding.not_asked, "from before it was made"),
            (forwarding.unknown, "unknown"),
        )
        if count
    ]
    if not forwarding.forwards:
        counts = ["does not send this device"]
    told = ", ".join(counts or ["nothing came"])
    _print_state(console, forwarding, clock, told)
    for reason in forwarding.reasons:
        _line(console, "", f"refused {_counted(reason)}", "yellow")
    for reason in forwarding.unknown_because:
        _line(console, "", f"unknown {_counted(reason)}", "yellow")


def _print_forwarding_of_fix(
    console: Console, forwarding: ForwardingReceipt, clock: _Clock
) -> None:
    reasons = "".join(
        f": {each.reason}" for each in (*forwarding.reasons, *forwarding.unknown_because)
    )
    told = "does not send this device"
    for count, text in (
        (forwarding.sent, "has sent it"),
        (forwarding.waiting, "has not sent it yet"),
        (forwarding.refused, "was refused it"),
        (forwarding.missed, "has not sent it: the log had deleted it"),
        (forwarding.not_asked, "has not been asked for it: it was made later"),
        (forwarding.unknown, "may have sent it"),
    ):
        if count:
            told = text + reasons
    _print_state(console, forwarding, clock, told)


def _print_state(console: Console, forwarding: ForwardingReceipt, clock: _Clock, told: str) -> None:
    """Print a line of what a forwarding has sent, and why it may not go on."""
    by_administrator, style = forwarding.paused_by_administrator, ""
    if by_administrator is not None:
        told += f"; paused by an administrator: {by_administrator.reason}"
    elif forwarding.paused_by is not None:
        told += f"; paused by {forwarding.paused_by}"
    if forwarding.error is not None:
        what = "failing since" if forwarding.state == "failing" else "failed last at"
        told += f"; {what} {clock.text(forwarding.error_time)}: {forwarding.error}"
    if forwarding.forwards and (forwarding.waiting or forwarding.refused or forwarding.missed):
        style = "yellow"
    where = f"{forwarding.name} ({forwarding.kind}, {forwarding.url})"
    _line(console, "forwarding", f"{where}: {told}", style)


def _forwarded(totals: ForwardingTotals) -> str:
    counts = [
        f"{count:,} {what}"
        for count, what in (
            (totals.sent, "sent"),
            (totals.waiting, "waiting"),
            (totals.refused, "refused"),
            (totals.missed, "deleted before they could be sent"),
            (totals.unknown, "unknown"),
        )
        if count
    ]
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(totals.states.items()))
    return f"{', '.join(counts or ['nothing'])}; forwardings: {states}"


def _end(
    console: Console, unknown: Sequence[str], lacking: int, readers: Sequence[ReaderReceipt]
) -> None:
    for each in unknown:
        _line(console, "unknown", each, "yellow")
    if not any(each.kind == "history" for each in readers):
        text = "no history job writes for this data folder (WAYLOG_DATA), and --history names none"
        _line(console, "unknown", text, "yellow")
    if lacking:
        console.print(Text(f"{lacking:,} missing where they should be", "bold red"))
    else:
        console.print(Text("nothing is missing where it should be", "bold green"))
