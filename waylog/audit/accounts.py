"""Accounts of a day's fixes: what came of each one at each reader. Facts in, counts out.

Fixes are taken one by one, those of a partition in the order of their offsets. Memory depends on
the number of devices and readers, not on that of fixes. All times are ms since 1970 UTC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from waylog.audit.facts import AddressFact, FixFact, Reader, ReaderKind, Refusal
from waylog.audit.forwarding_accounts import ForwardingAccount, accounts_of
from waylog.audit.reasons import count_reason
from waylog.forwarding.reach import Reach
from waylog.messages import address_time

#: A fix that came twice is recognised among at least half as many ids of others.
RECENT_IDS: Final = 500_000
#: Fixes that the history lacks and that are looked for under other offsets.
SUSPECTS_MAX: Final = 100_000
#: Devices with an account of their own; those beyond share one.
DEVICES_MAX: Final = 1_000_000
OTHERS: Final = "(others)"


class State(Enum):
    """What came of a fix at a reader; the values are the members of ReaderAccount."""

    TAKEN = "taken"
    PENDING = "pending"
    OVERDUE = "overdue"  # pending for too long
    MISSING = "missing"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class ReaderAccount:
    """Counts of one reader. There is one for each device, so it is small."""

    __slots__ = (
        *("missing", "overdue", "pending", "reasons", "refused", "since", "taken", "unknown"),
        "until",
    )

    def __init__(self) -> None:
        self.taken = self.pending = self.overdue = 0
        self.missing = self.refused = self.unknown = 0
        #: When the newest fix that was taken, and the oldest that is pending, were received.
        self.until: int | None = None
        self.since: int | None = None
        self.reasons: Counter[str] | None = None

    def count(self, state: State, number: int, received: int) -> None:
        """Count a fix, or take it back with -1."""
        if state is State.TAKEN:
            self.taken += number
            if number > 0 and (self.until is None or received > self.until):
                self.until = received
            return
        name = state.value
        setattr(self, name, getattr(self, name) + number)
        if number > 0 and state in {State.PENDING, State.OVERDUE}:
            self.since = received if self.since is None else min(self.since, received)

    def refused_because(self, reason: str, number: int = 1) -> None:
        """Count a reason, or take it back with -1; the first few different ones are kept."""
        if self.reasons is None:
            self.reasons = Counter()
        count_reason(self.reasons, reason, number)

    def add(self, other: ReaderAccount) -> None:
        """Add the counts of another account."""
        for state in State:
            setattr(self, state.value, getattr(self, state.value) + getattr(other, state.value))
        if other.until is not None:
            self.until = other.until if self.until is None else max(self.until, other.until)
        if other.since is not None:
            self.since = other.since if self.since is None else min(self.since, other.since)
        for reason, number in (other.reasons or {}).items():
            self.refused_because(reason, number)

    def lacking(self, kind: ReaderKind) -> int:
        """Return how many fixes should be there and are not.

        What resolver and history refuse is of no use to them, and no operator can change that.
        """
        refused = self.refused if kind in {ReaderKind.CONNECTOR, ReaderKind.GROUP} else 0
        return self.overdue + self.missing + refused


class DeviceAccount:
    """Counts of one device."""

    __slots__ = (
        *("acknowledged", "address", "device", "first_received", "first_time", "forwardings"),
        *("last_received", "last_time", "made_earlier", "readers", "refused", "repeats"),
        "unreadable",
    )

    def __init__(self, device: str, readers: int, reaches: Iterable[Reach] | None) -> None:
        self.device = device
        self.acknowledged = 0  # each fix once
        self.repeats = 0
        self.unreadable = 0  # records that are no fixes
        self.made_earlier = 0  # fixes from before the day
        self.first_received: int | None = None
        self.last_received: int | None = None
        self.first_time: int | None = None
        self.last_time: int | None = None
        self.readers = [ReaderAccount() for _ in range(readers)]
        self.address: AddressFact | None = None
        #: Messages that a gateway has refused, by reason.
        self.refused: Counter[str] | None = None
        #: What the owner's forwardings have sent; None if that is not known.
        self.forwardings: Final[list[ForwardingAccount] | None] = (
            None if reaches is None else accounts_of(device, reaches)
        )

    def note_times(self, fix: FixFact) -> None:
        """Note when a fix was received and made."""
        received, time = fix.received, fix.time
        if self.last_received is None or received > self.last_received:
            self.last_received = received
        if self.first_received is None or received < self.first_received:
            self.first_received = received
        if self.last_time is None or time > self.last_time:
            self.last_time = time
        if self.first_time is None or time < self.first_time:
            self.first_time = time


class Accounts:
    """The accounts of all devices that facts name."""

    def __init__(
        self,
        readers: Sequence[Reader],
        *,
        day_from: int,
        late_before: int,
        log_starts: Mapping[int, int],
        refusals: Iterable[Refusal] = (),
        reaches_of: Callable[[str], Iterable[Reach] | None] = lambda _user: (),
    ) -> None:
        """`late_before`: what was received before and is pending is overdue.

        `log_starts` has the first offset of each partition: a reader that has not come so far does
        not get what was before. `reaches_of` tells the forwardings of a user, None if they are not
        known.
        """
        self.readers: Final = list(readers)
        self.devices: Final[dict[str, DeviceAccount]] = {}
        #: Fixes that are in no file of the history at their offset.
        self.suspects: Final[list[FixFact]] = []
        self.unexamined = 0  # suspects beyond SUSPECTS_MAX
        self._day_from = day_from
        self._late_before = late_before
        self._log_starts = log_starts
        self._reaches_of = reaches_of
        self._refusals: dict[tuple[int, int], dict[str, str]] = {}
        for refusal in refusals:
            place = (refusal.partition, refusal.offset)
            self._refusals.setdefault(place, {})[refusal.reader] = refusal.reason
        # Hashes of ids: those that came last, and as many from before.
        self._young_ids: set[int] = set()
        self._old_ids: set[int] = set()

    def device(self, name: str) -> DeviceAccount:
        """Return the account of a device."""
        account = self.devices.get(name)
        if account is None:
            if len(self.devices) >= DEVICES_MAX:
                name = OTHERS
            account = self.devices.get(name)
            if account is None:
                reaches = self._reaches_of(name.partition("/")[0])
                account = DeviceAccount(name, len(self.readers), reaches)
                self.devices[name] = account
        return account

    def take(self, fix: FixFact, *, in_history: bool = False) -> bool:
        """Count a fix; `in_history`: a file has it at this offset. Return False for a repeat."""
        account = self.device(fix.device)
        if self._came_before(fix):
            account.repeats += 1
            return False
        account.note_times(fix)
        if self._count(account, fix, 1, in_history=in_history) is State.MISSING:
            if len(self.suspects) < SUSPECTS_MAX:
                self.suspects.append(fix)
            else:
                self.unexamined += 1
        return True

    def repeated(self, suspect: FixFact) -> None:
        """Note that the history has a suspect under another offset: it came before."""
        account = self.device(suspect.device)
        self._count(account, suspect, -1, in_history=False)
        account.repeats += 1

    def take_unreadable(self, device: str) -> None:
        """Count a record of topic `location` that is no fix."""
        self.device(device).unreadable += 1

    def take_refused(self, device: str, reason: str) -> None:
        """Count a message that a gateway has refused and kept in topic `error`."""
        account = self.device(device)
        if account.refused is None:
            account.refused = Counter()
        count_reason(account.refused, reason)

    def take_address(self, address: AddressFact) -> None:
        """Take an address; devices without any fix get no account by it."""
        account = self.devices.get(address.device)
        if account is not None and (
            account.address is None or _newness(account.address) <= _newness(address)
        ):
            account.address = address

    def refusals_at(self, fix: FixFact) -> Mapping[str, str] | None:
        """Return why a record was refused, by reader or forwarding; None if it was not."""
        return self._refusals.get((fix.partition, fix.offset))

    def totals(self) -> list[ReaderAccount]:
        """Return the sums over all devices, by reader."""
        sums = [ReaderAccount() for _ in self.readers]
        for account in self.devices.values():
            for total, own in zip(sums, account.readers, strict=True):
                total.add(own)
        return sums

    def without_address(self) -> list[str]:
        """Return the devices that the resolver has passed for long, and that have no address.

        A resolver asks a fallback geocoder again for some minutes.
        """
        for index, reader in enumerate(self.readers):
            if reader.kind is ReaderKind.RESOLVER:
                return [
                    account.device
                    for account in self.devices.values()
                    if account.address is None
                    and account.device != OTHERS
                    and (account.last_received or 0) < self._late_before
                    and account.readers[index].taken
                ]
        return []

    def _came_before(self, fix: FixFact) -> bool:
        key = hash((fix.device, fix.id))
        if key in self._young_ids or key in self._old_ids:
            return True
        self._young_ids.add(key)
        if len(self._young_ids) >= RECENT_IDS // 2:
            self._old_ids, self._young_ids = self._young_ids, set()
        return False

    def _count(
        self, account: DeviceAccount, fix: FixFact, number: int, *, in_history: bool
    ) -> State | None:
        """Count a fix at all readers; return what came of it in the history."""
        account.acknowledged += number
        if fix.time < self._day_from:
            account.made_earlier += number
        refusals = self.refusals_at(fix) if self._refusals else None
        for each in account.forwardings or ():
            if each.reach.forwards(fix.device):
                refusal = None if refusals is None else refusals.get(each.reach.letter_source)
                each.count(fix, each.judge(fix, refusal), number)
        of_history = None
        for index, reader in enumerate(self.readers):
            is_history = reader.kind is ReaderKind.HISTORY
            if is_history and in_history:
                state = State.TAKEN
            elif refusals is not None and reader.name in refusals:
                state = State.REFUSED
            else:
                state = self._state(reader, fix, is_history=is_history)
            account.readers[index].count(state, number, fix.received)
            if state is State.REFUSED and refusals is not None:
                account.readers[index].refused_because(refusals[reader.name], number)
            if is_history:
                of_history = state
        return of_history

    def _state(self, reader: Reader, fix: FixFact, *, is_history: bool) -> State:
        if reader.positions is None:
            return State.UNKNOWN
        is_late = fix.received < self._late_before
        if reader.has_passed(fix.partition, fix.offset):
            if not is_history:
                return State.TAKEN
            # Files alone do not tell whether a batch is whole yet.
            return State.MISSING if reader.is_exact or is_late else State.PENDING
        if fix.offset < self._log_starts.get(fix.partition, 0):
            return State.MISSING  # deleted before it was read
        return State.OVERDUE if is_late else State.PENDING


def _newness(address: AddressFact) -> tuple[int, int]:
    return address_time(address.time, address.resolved), address.resolved
