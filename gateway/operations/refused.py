"""Refused records of topic `error`: why, their bytes, and sending them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gateway.operations.record_values import ShownValue, ValueReader, as_base64
from waylog.administration.dead_letter_replay import Replay
from waylog.administration.log_access import LogAccess, NotInLog, partitions_of
from waylog.administration.offsets import watermarks
from waylog.administration.range_reading import open_log, read_ranges
from waylog.cli import CommandError
from waylog.kafka.dead_letters import DeadLetter, RecordPlace, parse_place, read_dead_letter
from waylog.kafka.ranges.log_ranges import LogRanges, Range
from waylog.kafka.topics import ERROR

#: Records of one answer, and sent again by one request.
REFUSED_MAX: Final = 100
_PREVIEW_BYTES: Final = 512
_WHOLE_BYTES_MAX: Final = 256 * 1024
_REASON_CHARACTERS_MAX: Final = 1_000
_QUEUED_KBYTES: Final = 8 * 1024


class RefusedRecord(msgspec.Struct, frozen=True):
    """A message or record that a part of the platform could not take."""

    place: str  # TOPIC:PARTITION:OFFSET
    time: int  # ms since 1970
    source: str
    reason: str
    device: str | None
    #: The place that it was read from; None if it never was a record.
    origin: str | None
    value: ShownValue
    whole: bool


class RefusedList(msgspec.Struct, frozen=True):
    """Refused records, the newest first; `before` asks for the ones before them."""

    records: list[RefusedRecord]
    before: int | None


class RefusedBytes(msgspec.Struct, frozen=True):
    """A refused record with its bytes."""

    record: RefusedRecord
    base64: str | None


class Retried(msgspec.Struct, frozen=True):
    """What became of a refused record that was to be sent again: one of three is set."""

    place: str
    to: str | None
    left_out: str | None
    refused: str | None


class RefusedRecords:
    """Reads topic `error` and sends records again. Its methods block."""

    def __init__(self, access: LogAccess, values: ValueReader) -> None:
        self._access = access
        self._values = values

    def newest(self, before: int | None) -> RefusedList:
        """Return the newest records, of those before an offset if one is given.

        Raises KafkaException, LogUnreachable and CommandError.
        """
        log = open_log(self._access, queued_max_messages_kbytes=_QUEUED_KBYTES)
        try:
            numbers = partitions_of(log.consumer, ERROR)
            if before is not None and len(numbers) > 1:
                raise CommandError("older ones of several partitions: `waylog dead-letters list`")
            ranges, earlier = {}, None
            for partition in numbers:
                low, high = watermarks(self._access, log.consumer, ERROR, partition)
                end = high if before is None else min(before, high)
                start = max(low, end - REFUSED_MAX)
                ranges[partition] = Range(start, end)
                if start > low and len(numbers) == 1:
                    earlier = start
            # Of each only what is shown is kept.
            shown = [
                self._shown(read_dead_letter(each), _PREVIEW_BYTES)
                for each in read_ranges(self._access, log, ERROR, ranges)
            ]
        finally:
            log.close()
        shown.sort(key=lambda each: each.time, reverse=True)
        return RefusedList(shown[:REFUSED_MAX], earlier)

    def whole(self, place: str) -> RefusedBytes:
        """Return a record with its bytes; raises as `newest` does."""
        log = open_log(self._access, queued_max_messages_kbytes=_QUEUED_KBYTES)
        try:
            [letter] = self._letters(log, [place])
        finally:
            log.close()
        value = letter.value
        fits = value is None or len(value) <= _WHOLE_BYTES_MAX
        return RefusedBytes(
            self._shown(letter, _WHOLE_BYTES_MAX), as_base64(value) if fits else None
        )

    def retry(self, places: Sequence[str], to: str | None, *, is_dry: bool) -> list[Retried]:
        """Send records again, each once; raises as `newest` does, and ConfigError."""
        log = open_log(self._access, queued_max_messages_kbytes=_QUEUED_KBYTES)
        try:
            if to is not None:
                partitions_of(log.consumer, to)
            replay = Replay(self._access, to=to, is_dry=is_dry)
            return [
                Retried(str(each.place), each.to, each.skipped, each.refused)
                for each in replay.run(self._letters(log, places))
            ]
        finally:
            log.close()

    def _letters(self, log: LogRanges, places: Sequence[str]) -> Iterator[DeadLetter]:
        existing = partitions_of(log.consumer, ERROR)
        for text in places:
            place = _place(text)
            if place.partition not in existing:
                raise NotInLog(f"topic {ERROR} has no partition {place.partition}")
            wanted = {place.partition: Range(place.offset, place.offset + 1)}
            found = list(read_ranges(self._access, log, ERROR, wanted))
            if not found:
                raise NotInLog(f"there is no record {place}; it may be too old")
            yield read_dead_letter(found[0])

    def _shown(self, letter: DeadLetter, bytes_max: int) -> RefusedRecord:
        return RefusedRecord(
            str(letter.place),
            letter.time,
            letter.source,
            letter.reason[:_REASON_CHARACTERS_MAX],
            letter.device,
            None if letter.origin is None else str(letter.origin),
            self._values.shown(ERROR, letter.value, bytes_max),
            letter.is_whole,
        )


def _place(text: str) -> RecordPlace:
    place = parse_place(text)
    if place is None or place.topic != ERROR:
        raise CommandError(f"{text[:200]!r} is no place of topic {ERROR}: error:PARTITION:OFFSET")
    return place
