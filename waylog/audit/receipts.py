"""Receipts: the accounts of a day as people and programs read them. No coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from waylog.audit.accounts import Accounts, DeviceAccount, ReaderAccount
from waylog.audit.days import Day
from waylog.audit.facts import FixFact, Reader
from waylog.audit.forwarding_accounts import (
    ForwardingReceipt,
    ForwardingTotals,
    forwarding_receipts,
    forwarding_totals,
)
from waylog.audit.pushes import ChannelPushes
from waylog.audit.reasons import ReasonCount, reason_counts
from waylog.audit.sequences import Sequence as AppSequence

#: What can be said of what a device has sent and the platform has never seen.
NO_SEQUENCE = (
    "the app does not count its fixes, so what never arrived cannot be told; one that sends our "
    "JSON may add a number, `sequence`"
)


class ReaderReceipt(msgspec.Struct, frozen=True):
    """What came of the fixes at one reader of the log; times are ms since 1970 UTC."""

    name: str
    kind: str  # resolver, connector, history or group
    expected: bool  # what it lacks counts
    taken: int  # the reader has gone past them; in the history: they are in a file
    pending: int
    overdue: int  # pending for longer than --late
    missing: int  # lost, or deleted from the log before the reader came
    refused: int
    unknown: int
    until: int | None  # arrival of the newest fix that was taken
    since: int | None  # arrival of the oldest one that is pending
    reasons: list[ReasonCount]


class Resolved(msgspec.Struct, frozen=True):
    """The newest fix with an address."""

    fix_id: str
    time: int  # of the fix, ms
    resolved: int  # ms


class Receipt(msgspec.Struct, frozen=True):
    """The receipt of one device and day."""

    device: str
    day: str
    timezone: str
    from_ms: int
    to_ms: int
    acknowledged: int  # fixes that the log has, each once
    repeats: int  # records with a fix that came before
    unreadable: int  # records that are no fixes
    made_earlier: int  # of the fixes: made before this day
    first_received: int | None
    last_received: int | None
    first_time: int | None
    last_time: int | None
    refused: list[ReasonCount]  # by a gateway
    readers: list[ReaderReceipt]
    resolved: Resolved | None
    address_missing: bool
    lacking: int  # fixes that should be somewhere and are not
    unknown: list[str]
    #: One for each forwarding of the owner; None if they are not known.
    forwardings: list[ForwardingReceipt] | None
    #: None where that was not looked at: in the day of all devices.
    sequence: AppSequence | None = None
    #: What gateways have told of addresses that they sent; None as above.
    pushes: list[ChannelPushes] | None = None


class FixPlace(msgspec.Struct, frozen=True):
    """Where the log has, or had, a record of a fix."""

    partition: int
    offset: int


class FixReceipt(msgspec.Struct, frozen=True):
    """The receipt of one fix; times are ms since 1970 UTC."""

    id: str
    device: str
    time: int
    received: int
    places: list[FixPlace]  # several if it came several times
    readers: list[ReaderReceipt]
    resolved: Resolved | None  # the newest fix of the device with an address
    lacking: int
    unknown: list[str]
    forwardings: list[ForwardingReceipt] | None  # as in Receipt


class DayTotals(msgspec.Struct, frozen=True):
    """The sums of a day over all devices."""

    day: str
    timezone: str
    from_ms: int
    to_ms: int
    devices: int  # of which a fix was acknowledged
    acknowledged: int
    repeats: int
    unreadable: int
    refused: int
    readers: list[ReaderReceipt]
    addresses_missing: int
    lacking: int
    unknown: list[str]
    forwardings: ForwardingTotals


def receipt_of(
    account: DeviceAccount,
    accounts: Accounts,
    day: Day,
    *,
    address_missing: bool,
    unknown: Sequence[str],
    sequence: AppSequence | None = None,
    pushes: list[ChannelPushes] | None = None,
) -> Receipt:
    """Return the receipt of one device."""
    readers = [
        _reader_receipt(reader, own)
        for reader, own in zip(accounts.readers, account.readers, strict=True)
    ]
    address = account.address
    return Receipt(
        device=account.device,
        day=day.date,
        timezone=day.timezone,
        from_ms=day.from_ms,
        to_ms=day.to_ms,
        acknowledged=account.acknowledged,
        repeats=account.repeats,
        unreadable=account.unreadable,
        made_earlier=account.made_earlier,
        first_received=account.first_received,
        last_received=account.last_received,
        first_time=account.first_time,
        last_time=account.last_time,
        refused=reason_counts(account.refused),
        readers=readers,
        resolved=None
        if address is None
        else Resolved(address.fix_id, address.time, address.resolved),
        address_missing=address_missing,
        lacking=_lacking(accounts.readers, account.readers) + address_missing,
        unknown=list(unknown),
        forwardings=None
        if account.forwardings is None
        else forwarding_receipts(account.device, account.forwardings),
        sequence=sequence,
        pushes=pushes,
    )


def fix_receipt_of(
    found: Sequence[FixFact], receipt: Receipt, forwardings: list[ForwardingReceipt] | None
) -> FixReceipt:
    """Return the receipt of a fix: its records, and the receipt of nothing but this fix."""
    first = found[0]
    return FixReceipt(
        id=first.id,
        device=first.device,
        time=first.time,
        received=first.received,
        places=[FixPlace(each.partition, each.offset) for each in found],
        readers=receipt.readers,
        resolved=receipt.resolved,
        lacking=receipt.lacking,
        unknown=receipt.unknown,
        forwardings=forwardings,
    )


def totals_of(
    accounts: Accounts, day: Day, *, addresses_missing: int, unknown: Sequence[str]
) -> DayTotals:
    """Return the sums over all devices."""
    devices = accounts.devices.values()
    sums = accounts.totals()
    return DayTotals(
        day=day.date,
        timezone=day.timezone,
        from_ms=day.from_ms,
        to_ms=day.to_ms,
        devices=sum(each.acknowledged > 0 for each in devices),
        acknowledged=sum(each.acknowledged for each in devices),
        repeats=sum(each.repeats for each in devices),
        unreadable=sum(each.unreadable for each in devices),
        refused=sum(sum((each.refused or Counter()).values()) for each in devices),
        readers=[
            _reader_receipt(reader, own) for reader, own in zip(accounts.readers, sums, strict=True)
        ],
        addresses_missing=addresses_missing,
        lacking=_lacking(accounts.readers, sums) + addresses_missing,
        unknown=list(unknown),
        forwardings=forwarding_totals(each.forwardings or () for each in devices),
    )


def _lacking(readers: Iterable[Reader], accounts: Iterable[ReaderAccount]) -> int:
    return sum(
        own.lacking(reader.kind)
        for reader, own in zip(readers, accounts, strict=True)
        if reader.is_expected
    )


def _reader_receipt(reader: Reader, account: ReaderAccount) -> ReaderReceipt:
    return ReaderReceipt(
        name=reader.name,
        kind=reader.kind.value,
        expected=reader.is_expected,
        taken=account.taken,
        pending=account.pending,
        overdue=account.overdue,
        missing=account.missing,
        refused=account.refused,
        unknown=account.unknown,
        until=account.until,
        since=account.since,
        reasons=reason_counts(account.reasons),
    )
