"""Gathers the facts of a day, and lets the accounts judge them.

Positions of readers are read before the files of the history and the records of the log: what was
passed before has to be there afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from waylog.audit.accounts import Accounts
from waylog.audit.evidence import address_fact, device_of, facts_in
from waylog.audit.facts import FixFact, ReaderKind
from waylog.audit.forwarding_accounts import ForwardingReceipt, receipts_of_fix
from waylog.audit.forwarding_records import ForwardingRecords, ForwardingsUnknown
from waylog.audit.history_rows import HistoryRows, Offsets
from waylog.audit.log_reader import LogReader
from waylog.audit.positions import Positions, beyond_the_end, read_positions
from waylog.audit.pushes import LATE_MS, ChannelPushes, PushSums, hash_of, key_of
from waylog.audit.question import Progress, Question
from waylog.audit.receipts import (
    DayTotals,
    FixReceipt,
    Receipt,
    fix_receipt_of,
    receipt_of,
    totals_of,
)
from waylog.audit.refusals import read_refusals
from waylog.audit.sequences import find_gaps
from waylog.config import ConfigError
from waylog.forwarding.reach import LogState, Reach
from waylog.history.erasures import Erasures
from waylog.kafka.clients import LogForbidden, LogUnreachable
from waylog.kafka.ranges.log_ranges import Range, Watermarks
from waylog.kafka.record_batch import partition_of
from waylog.kafka.topics import ADDRESS, ERASURE, LOCATION, PUSH

#: Offsets whose presence in the history is held in memory at once, a byte each.
PIECE_OFFSETS: Final = 1 << 26
#: Of a device's day: beyond that its own partition alone is read.
_ALL_PARTITIONS_MAX: Final = 1_000_000
_SEQUENCES_MAX: Final = 1_000_000


class NothingToAudit(Exception):
    """The log has no topic `location`."""


class Audit:
    """The answer to a question."""

    def __init__(
        self,
        question: Question,
        accounts: Accounts,
        unaddressed: Iterable[str],
        unknown: list[str],
        numbered: list[tuple[int, int]],
        found: list[FixFact],
        *,
        is_history_unreadable: bool,
        pushes: list[ChannelPushes] | None,
    ) -> None:
        #: The records of the fix that was asked for; none if it was not found.
        self.found: Final = found
        self.accounts: Final = accounts
        self.unknown: Final = unknown
        #: There is a history, and what it has is unknown, because it cannot be read now.
        self.is_history_unreadable: Final = is_history_unreadable
        self._question = question
        self._unaddressed = frozenset(unaddressed)
        self._numbered = numbered
        self._pushes = pushes

    def receipt(self, device: str) -> Receipt:
        """Return the receipt of a device, with zeros for one of which nothing came."""
        is_only = self._question.device is not None
        return receipt_of(
            self.accounts.device(device),
            self.accounts,
            self._question.day,
            address_missing=device in self._unaddressed,
            unknown=self.unknown if is_only else (),
            sequence=find_gaps(self._numbered) if is_only else None,
            pushes=self._pushes if is_only else None,
        )

    def fix_receipt(self) -> FixReceipt:
        """Return the receipt of the fix that was asked for, which was found."""
        device = self.found[0].device
        return fix_receipt_of(self.found, self.receipt(device), self._forwardings_of_fix(device))

    def _forwardings_of_fix(self, device: str) -> list[ForwardingReceipt] | None:
        accounts = self.accounts.device(device).forwardings
        if accounts is None:
            return None
        records = [(each, self.accounts.refusals_at(each) or {}) for each in self.found]
        return receipts_of_fix(records, [each.reach for each in accounts])

    def receipts(self) -> Iterator[Receipt]:
        """Yield the receipts of all devices, by name."""
        for device in sorted(self.accounts.devices):
            yield self.receipt(device)

    def totals(self) -> DayTotals:
        """Return the sums over all devices."""
        return totals_of(
            self.accounts,
            self._question.day,
            addresses_missing=len(self._unaddressed),
            unknown=self.unknown,
        )


class Auditor:
    """Answers questions from a log and a history; all methods block."""

    def __init__(
        self,
        log: LogReader,
        history: HistoryRows | None,
        now_ms: int,
        *,
        progress: Progress = lambda _what, _done, _total: None,
        positions: Positions | None = None,
        forwardings: ForwardingRecords | None = None,
    ) -> None:
        """`positions` are those of readers if they were read lately.

        `forwardings` are those of the log as far as they were read for other questions.
        """
        self._log = log
        self._history = history
        self._now_ms = now_ms
        self._progress = progress
        self._positions = positions
        self._forwardings = forwardings or ForwardingRecords(log.servers)

    def answer(self, question: Question) -> Audit:
        """Return the answer; raises NothingToAudit, LogUnreachable and HistoryUnreadable."""
        return _Reading(
            *(self._log, self._history, self._now_ms, self._progress, question),
            *(self._positions, self._forwardings),
        ).answer()


class _Reading:
    """The work on one question."""

    def __init__(
        self,
        log: LogReader,
        history: HistoryRows | None,
        now_ms: int,
        progress: Progress,
        question: Question,
        positions: Positions | None,
        forwardings: ForwardingRecords,
    ) -> None:
        self._log = log
        self._history = history
        self._now_ms = now_ms
        self._progress = progress
        self._question = question
        self._key = None if question.device is None else question.device.encode()
        self._unknown: list[str] = []
        self._numbered: list[tuple[int, int]] = []
        self._positions = positions or read_positions(log, history)
        self._forwardings: ForwardingRecords | None = forwardings
        self._reaches: dict[str, list[Reach] | None] = {}
        self._erasures = Erasures()
        self._found: list[FixFact] = []
        self._is_partial = question.device is not None or question.fix_id is not None

    def answer(self) -> Audit:
        question = self._question
        self._read_forwardings()
        extents = self._log.watermarks(LOCATION)
        if not extents:
            raise NothingToAudit(f"the log has no topic {LOCATION}")
        self._read_erasures()
        ranges = self._ranges(extents)
        gone = {
            partition: extents[partition].low
            for partition, each in ranges.items()
            if each.start == extents[partition].low > 0
        }
        refusals = read_refusals(
            *(self._log, question, self._unknown, self._progress),
            has_forwardings=self._forwardings is not None and not self._forwardings.is_empty,
        )
        self._log_state = LogState(
            {partition: each.low for partition, each in extents.items()},
            {partition: each.high for partition, each in extents.items()},
            self._positions.groups.get(question.forwarding_group),
            refusals.has_all_by_servers,
        )
        refusing = {each.reader for each in refusals.by_readers}
        readers = self._positions.readers(question, refusing)
        self._unknown += self._positions.unknown_of(question, refusing)
        readers = beyond_the_end(readers, extents, self._unknown)
        self._unknown += self._positions.unknown
        self._accounts = Accounts(
            readers,
            day_from=question.day.from_ms,
            late_before=self._now_ms - question.late_ms,
            log_starts=self._log_state.starts,
            refusals=[*refusals.by_readers, *refusals.by_servers],
            reaches_of=self._reaches_of,
        )
        if question.device is not None:
            self._accounts.device(question.device)  # it has a receipt, also if nothing came
        has_history = any(
            each.kind is ReaderKind.HISTORY and each.positions is not None for each in readers
        )
        self._history = self._history if has_history else None
        if self._history is not None:
            self._history.refresh()
        if gone and question.fix_id is None:
            self._take_gone(gone)
        self._take_log(self._bounded(ranges))
        for refused in refusals.by_gateways:
            if not self._erasures.covers(refused.device, refused.time):
                self._accounts.take_refused(refused.device, refused.reason)
        if question.fix_id is not None and not self._found and self._history is not None:
            self._take_from_history(self._history, question.fix_id)
        self._settle_suspects()
        unaddressed = self._take_addresses(question)
        return Audit(
            question,
            self._accounts,
            unaddressed,
            self._unknown,
            self._numbered,
            self._found,
            is_history_unreadable=self._positions.is_history_unreadable,
            pushes=None if question.device is None else self._read_pushes(question.device),
        )

    # --- which offsets --------------------------------------------------------------------------

    def _ranges(self, extents: Mapping[int, Watermarks]) -> dict[int, Range]:
        """Return the offsets of the day, of the partitions that matter."""
        day, device = self._question.day, self._question.device
        starts = self._log.offsets_at(LOCATION, day.from_ms, extents)
        ends = (
            self._log.offsets_at(LOCATION, day.to_ms, extents)
            if day.to_ms <= self._now_ms
            else {partition: each.high for partition, each in extents.items()}
        )
        ranges = {
            partition: Range(start, max(start, ends[partition]))
            for partition, start in starts.items()
        }
        if device is None or self._question.all_partitions:
            return ranges
        limit = self._question.records_max or _ALL_PARTITIONS_MAX
        if _size(ranges) <= limit:
            return ranges
        own = partition_of(device.encode(), len(extents))
        self._unknown.append(
            f"only {LOCATION}-{own} was read, where the device's fixes are now; before partitions "
            "were added to the topic they may have been in others"
        )
        return {own: ranges[own]}

    def _bounded(self, ranges: dict[int, Range]) -> dict[int, Range]:
        """Return the ranges to read; of a day that is too large, what the history has not got."""
        limit = self._question.records_max
        if limit is None or _size(ranges) <= limit:
            return ranges
        left = ranges
        if self._history is not None:
            passed = self._positions.history.positions if self._positions.history else {}
            ends = {
                partition: min(max(passed.get(partition, 0), each.start), each.end)
                for partition, each in ranges.items()
            }
            counted = {
                partition: Range(each.start, ends[partition]) for partition, each in ranges.items()
            }
            for fact in self._history.rows_at(counted, self._question.device):
                self._take(fact, fact.received, in_history=True)
            left = {
                partition: Range(ends[partition], each.end) for partition, each in ranges.items()
            }
            self._unknown.append(
                f"the log has {_size(ranges)} records of that day, which are too many to be read "
                "for this answer: what is in the history was counted there, and what it lacks is "
                "not known; `waylog audit device` reads them all"
            )
        if _size(left) <= limit:
            return left
        share = limit // len(left)
        self._unknown.append(
            f"{_size(left)} records are in no file of a history yet, and too many to be read for "
            "this answer: the newest of them are left out; `waylog audit device` reads them all"
        )
        return {
            partition: Range(each.start, min(each.end, each.start + share))
            for partition, each in left.items()
        }

    # --- facts ----------------------------------------------------------------------------------

    def _read_erasures(self) -> None:
        marks = self._log.watermarks(ERASURE)
        ranges = {partition: Range(*each) for partition, each in marks.items()}
        for records in self._log.read(ERASURE, ranges):
            for record in records:
                value = record.value()
                self._erasures.take(value.encode() if isinstance(value, str) else value)

    def _read_forwardings(self) -> None:
        assert self._forwardings is not None
        try:
            self._forwardings.refresh(self._log, self._question.records_max)
        except LogForbidden as error:
            self._unknown.append(f"what forwardings have sent is not known: {error}")
            self._forwardings = None

    def _reaches_of(self, user: str) -> list[Reach] | None:
        """Return how far the forwardings of a user are, None if that is not known."""
        if user not in self._reaches:
            self._reaches[user] = self._read_reaches(user)
        return self._reaches[user]

    def _read_reaches(self, user: str) -> list[Reach] | None:
        if self._forwardings is None:
            return None
        try:
            return self._forwardings.of_user(user, self._log_state)
        except (ForwardingsUnknown, ConfigError, LogUnreachable) as error:
            told = f"what forwardings have sent is not known: {error}"
            if told not in self._unknown:
                self._unknown.append(told)
            return None

    def _take_gone(self, gone: Mapping[int, int]) -> None:
        day = self._question.day
        begins = ", ".join(f"{LOCATION}-{number} {low}" for number, low in sorted(gone.items()))
        if self._history is None:
            self._unknown.append(
                f"the log has deleted records of that day or of the time before (it begins at "
                f"{begins}): they cannot be counted without a history"
            )
            return
        self._unknown.append(
            f"the log has deleted records of that day or of the time before (it begins at "
            f"{begins}): of these, what the history has was counted, and what it lacks is not known"
        )
        rows = self._history.rows_received(day.from_ms, day.to_ms, gone, self._question.device)
        for fact in rows:
            self._take(fact, fact.received, in_history=True)

    def _take_log(self, ranges: Mapping[int, Range]) -> None:
        total, done = _size(ranges), 0
        unseen = 0
        for piece in pieces(ranges, PIECE_OFFSETS):
            there = None if self._history is None else self._in_history(piece)
            for records in self._log.read(LOCATION, piece):
                for record, fact in facts_in(records, self._question):
                    self._take_record(record.timestamp()[1], device_of(record), fact, there)
                done += len(records)
                self._progress(f"topic {LOCATION}", done, total)
            unseen += 0 if there is None else there.unseen
        if unseen and not self._is_partial and not len(self._erasures):
            self._unknown.append(
                f"{unseen} rows of the history are at offsets where the log has no fix: it may be "
                "the history of another log"
            )

    def _in_history(self, piece: Mapping[int, Range]) -> Offsets:
        assert self._history is not None
        return self._history.offsets(
            piece, lambda done, total: self._progress("the history", done, total)
        )

    def _take_record(
        self, timestamp: int, device: str | None, fact: FixFact | None, there: Offsets | None
    ) -> None:
        if fact is None:
            if device is not None and not self._erasures.covers(device, timestamp):
                self._accounts.take_unreadable(device)
            return
        in_history = there is not None and there.has(fact.partition, fact.offset)
        self._take(fact, timestamp, in_history=in_history)

    def _take(self, fact: FixFact, timestamp: int, *, in_history: bool) -> None:
        if fact.device in self._erasures and self._erasures.covers(
            fact.device, timestamp, fact.time, fact.received
        ):
            return
        if self._question.fix_id is not None:
            if fact.id != self._question.fix_id:
                return
            self._found.append(fact)
        is_new = self._accounts.take(fact, in_history=in_history)
        if is_new and fact.sequence is not None and len(self._numbered) < _SEQUENCES_MAX:
            self._numbered.append((fact.time, fact.sequence))

    def _take_from_history(self, history: HistoryRows, identity: str) -> None:
        """Look for a fix that the log has not, or not any more, among those made at its time."""
        time_ms = time_in_id(identity)
        date = utc_date(self._question.day.from_ms if time_ms is None else time_ms)
        for fact in history.find_id(identity, date) if date is not None else ():
            if self._question.device in {None, fact.device}:
                self._take(fact, fact.received, in_history=True)

    def _settle_suspects(self) -> None:
        """Look for suspects under other offsets: a fix that came twice is in the history once."""
        suspects = self._accounts.suspects
        if not suspects or self._history is None:
            return
        self._progress("what the history lacks", 0, len(suspects))
        wanted = {(each.device, each.id) for each in suspects}
        dates = {date for each in suspects if (date := utc_date(each.time)) is not None}
        found = {(fact.device, fact.id) for fact in self._history.find(wanted, dates)}
        for suspect in suspects:
            if (suspect.device, suspect.id) in found:
                self._accounts.repeated(suspect)
        if self._accounts.unexamined:
            self._unknown.append(
                f"{self._accounts.unexamined} more fixes that the history lacks were not looked "
                "for one by one: some may have come twice"
            )

    def _take_addresses(self, question: Question) -> list[str]:
        """Take the newest addresses; return the devices that should have one and have none."""
        accounts = self._accounts
        if not question.reads_addresses:
            if question.address is not None:
                accounts.take_address(question.address)
            return []
        extents = self._log.watermarks(ADDRESS)
        starts = self._log.offsets_at(ADDRESS, question.day.from_ms, extents)
        self._read_addresses({each: Range(starts[each], extents[each].high) for each in extents})
        if accounts.without_address():
            # It may be older: a late fix has none, and one who stands still keeps that of before.
            self._read_addresses({each: Range(extents[each].low, starts[each]) for each in extents})
        return [
            device
            for device in accounts.without_address()
            if not self._erasures.covers(device, question.day.from_ms)
        ]

    def _read_pushes(self, device: str) -> list[ChannelPushes] | None:
        """Return what gateways have sent to a device, None if that is not known."""
        day = self._question.day
        try:
            marks = self._log.watermarks(PUSH)
            if not marks:
                return None
            own = partition_of(key_of(hash_of(device)), len(marks))
            marks = {own: marks[own]}
            start = self._log.offsets_at(PUSH, day.from_ms, marks)[own]
            end = self._log.offsets_at(PUSH, day.to_ms + LATE_MS, marks)[own]
            limit = self._question.records_max
            if limit is not None and end - start > limit:
                self._unknown.append(
                    f"topic {PUSH} has too many records to be read for this answer"
                )
                return None
            sums = PushSums(device, day)
            for records in self._log.read(PUSH, {own: Range(start, end)}):
                for record in records:
                    value = record.value()
                    sums.take(value if isinstance(value, bytes) else None)
        except LogForbidden as error:
            self._unknown.append(f"what was pushed is not known: {error}")
            return None
        return [] if self._erasures.covers(device, day.to_ms - 1) else sums.sums()

    def _read_addresses(self, ranges: Mapping[int, Range]) -> None:
        total, done = _size(ranges), 0
        for records in self._log.read(ADDRESS, ranges):
            for record in records:
                if self._key is not None and record.key() != self._key:
                    continue
                address = address_fact(record)
                if address is not None:
                    self._accounts.take_address(address)
            done += len(records)
            self._progress(f"topic {ADDRESS}", done, total)


def pieces(ranges: Mapping[int, Range], offsets_max: int) -> Iterator[dict[int, Range]]:
    """Yield the same offsets in pieces of at most so many, in order."""
    piece: dict[int, Range] = {}
    room = offsets_max
    for partition, wanted in ranges.items():
        start = wanted.start
        while start < wanted.end:
            end = min(wanted.end, start + room)
            piece[partition] = Range(start, end)
            room -= end - start
            start = end
            if not room:
                yield piece
                piece, room = {}, offsets_max
    if piece:
        yield piece


def time_in_id(identity: str) -> int | None:
    """Return the time (ms) in an id that Waylog has made; see waylog.messages.fix_id."""
    return int(identity[:12], 16) if re.fullmatch(r"[0-9a-f]{24}", identity) else None


def utc_date(time_ms: int) -> str | None:
    """Return the UTC date of a time, None for one that no calendar has."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d}"
    except (ValueError, OverflowError, OSError):
        return None


def _size(ranges: Mapping[int, Range]) -> int:
    return sum(each.end - each.start for each in ranges.values())
