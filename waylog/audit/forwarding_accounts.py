"""Accounts of what a user's forwardings have sent of a device, and their receipts. Sans-IO.

What another server has not got never counts as lacking: it is its owner's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from waylog.audit.facts import FixFact
from waylog.audit.reasons import ReasonCount, count_reason, reason_counts
from waylog.forwarding.reach import Judged, Outcome, Reach, Stored
from waylog.forwarding.shown import shown

#: Of a fix that came several times, the outcome that says most comes first.
_BEST_FIRST: Final = (
    *(Outcome.SENT, Outcome.REFUSED, Outcome.WAITING, Outcome.UNKNOWN, Outcome.MISSED),
    Outcome.NOT_ASKED,
)


class ForwardingAccount:
    """Counts of one device at one forwarding."""

    __slots__ = ("counts", "partitions", "reach", "reasons", "since", "unknown", "until")

    def __init__(self, reach: Reach) -> None:
        self.reach: Final = reach
        self.counts: Final[Counter[Outcome]] = Counter()
        #: Where the log has the device's fixes.
        self.partitions: Final[set[int]] = set()
        #: When the newest fix that was sent, and the oldest that waits, were received.
        self.until: int | None = None
        self.since: int | None = None
        #: Why the server has refused fixes, and why it is unknown what became of others.
        self.reasons: Final[Counter[str]] = Counter()
        self.unknown: Final[Counter[str]] = Counter()

    def judge(self, fix: FixFact, refusal: str | None) -> Judged:
        """Tell what has become of a fix, which the server has refused with `refusal`."""
        if not fix.is_own:
            return Judged(Outcome.NOT_ASKED)
        if refusal is not None:
            return Judged(Outcome.REFUSED, refusal)
        stored = fix.received if fix.stored is None else fix.stored
        return self.reach.judge(Stored(fix.partition, fix.offset, stored))

    def count(self, fix: FixFact, judged: Judged, number: int) -> None:
        """Count a fix, or take it back with -1."""
        outcome, reason = judged
        self.counts[outcome] += number
        if reason is not None:
            reasons = self.reasons if outcome is Outcome.REFUSED else self.unknown
            count_reason(reasons, reason, number)
        if number < 0:
            return
        self.partitions.add(fix.partition)
        if outcome is Outcome.SENT:
            self.until = max(self.until or 0, fix.received)
        elif outcome is Outcome.WAITING:
            self.since = fix.received if self.since is None else min(self.since, fix.received)


class ForwardingPosition(msgspec.Struct, frozen=True):
    """The position of a forwarding in a partition of topic `location`."""

    partition: int
    offset: int  # everything before it was sent, refused or left out
    live: bool


class PausedByAdministrator(msgspec.Struct, frozen=True):
    """Why an administrator has paused a forwarding."""

    reason: str
    time: int  # ms


class ForwardingReceipt(msgspec.Struct, frozen=True):
    """What became of the fixes at one forwarding of the user; times are ms since 1970 UTC."""

    id: str
    name: str
    kind: str
    url: str  # without path and query, which may be secrets
    state: str  # new, live, behind, failing or paused
    forwards: bool  # it sends this device on; else there is nothing to count
    sent: int
    waiting: int
    refused: int  # by the server, for good
    missed: int  # deleted from the log before they could be sent
    not_asked: int  # stored before the forwarding was made
    unknown: int
    until: int | None  # arrival of the newest fix that was sent
    since: int | None  # arrival of the oldest one that waits
    #: Of the partitions that have the device's fixes.
    positions: list[ForwardingPosition]
    paused_by: str | None
    paused_by_administrator: PausedByAdministrator | None
    error: str | None  # why the last attempt failed, whatever device it was for
    error_time: int | None
    reasons: list[ReasonCount]  # of refusals
    unknown_because: list[ReasonCount]


class ForwardingTotals(msgspec.Struct, frozen=True):
    """The sums of a day over the forwardings of all users whose devices have sent something."""

    forwardings: int
    states: dict[str, int]  # how many forwardings are in each
    sent: int
    waiting: int
    refused: int
    missed: int
    not_asked: int
    unknown: int


def accounts_of(device: str, reaches: Iterable[Reach]) -> list[ForwardingAccount]:
    """Return accounts of a device at its owner's forwardings."""
    user = device.partition("/")[0]
    return [ForwardingAccount(each) for each in reaches if each.user == user]


def forwarding_receipts(
    device: str, accounts: Iterable[ForwardingAccount]
) -> list[ForwardingReceipt]:
    """Return the receipts of a device."""
    return [_receipt(device, each) for each in accounts]


def receipts_of_fix(
    records: Sequence[tuple[FixFact, Mapping[str, str]]], reaches: Iterable[Reach]
) -> list[ForwardingReceipt]:
    """Return what became of one fix, of which the log may have several records.

    With each record come the reasons for which it was refused, by reader. It was sent if one of
    them was.
    """
    device = records[0][0].device
    accounts = accounts_of(device, reaches)
    for account in accounts:
        if account.reach.forwards(device):
            judged = [
                (fix, account.judge(fix, refusals.get(account.reach.letter_source)))
                for fix, refusals in records
            ]
            best = min(judged, key=lambda each: _BEST_FIRST.index(each[1].outcome))
            account.count(*best, 1)
    return forwarding_receipts(device, accounts)


def forwarding_totals(devices: Iterable[Iterable[ForwardingAccount]]) -> ForwardingTotals:
    """Return the sums over the accounts of many devices."""
    counts: Counter[Outcome] = Counter()
    reaches: dict[tuple[str, str], Reach] = {}
    for accounts in devices:
        for account in accounts:
            counts.update(account.counts)
            reaches[account.reach.user, account.reach.id] = account.reach
    states = Counter(_shown(each)["state"] for each in reaches.values())
    return ForwardingTotals(
        forwardings=len(reaches),
        states=dict(states),
        **{each.value: counts[each] for each in Outcome},
    )


def _shown(reach: Reach) -> dict[str, Any]:
    return shown(reach.id, reach.forwarding, reach.progress, reach.pause)


def _receipt(device: str, account: ForwardingAccount) -> ForwardingReceipt:
    reach = account.reach
    told = _shown(reach)
    by_administrator = told["paused_by_administrator"]
    positions = (
        (partition, reach.position(partition), reach.progress.get(partition))
        for partition in sorted(account.partitions)
    )
    counts = account.counts
    return ForwardingReceipt(
        **{name: told[name] for name in _AS_SHOWN},
        forwards=reach.forwards(device),
        sent=counts[Outcome.SENT],
        waiting=counts[Outcome.WAITING],
        refused=counts[Outcome.REFUSED],
        missed=counts[Outcome.MISSED],
        not_asked=counts[Outcome.NOT_ASKED],
        unknown=counts[Outcome.UNKNOWN],
        until=account.until,
        since=account.since,
        positions=[
            ForwardingPosition(partition, offset, progress.live)
            for partition, offset, progress in positions
            if offset is not None and progress is not None
        ],
        paused_by_administrator=(
            None if by_administrator is None else PausedByAdministrator(**by_administrator)
        ),
        reasons=reason_counts(account.reasons),
        unknown_because=reason_counts(account.unknown),
    )


#: What a receipt has as the owner is shown it elsewhere.
_AS_SHOWN: Final = ("id", "name", "kind", "url", "state", "paused_by", "error", "error_time")


def for_administrators(receipt: ForwardingReceipt) -> ForwardingReceipt:
    """Return a receipt without what the owner's server has answered.

    Administrators are shown where others' forwardings lead and how far they are (see
    waylog.forwarding.shown).
    """
    return msgspec.structs.replace(receipt, error=None, error_time=None, reasons=[])
