"""Reads what was refused: topic `error`, and dead letters of connectors."""

from __future__ import annotations

from typing import Final, NamedTuple

from waylog.audit.evidence import (
    GatewayRefusal,
    connector_refusal_of,
    forwarding_refusal_of,
    refusal_of,
)
from waylog.audit.facts import Refusal
from waylog.audit.log_reader import LogReader
from waylog.audit.question import Progress, Question
from waylog.kafka.clients import LogForbidden
from waylog.kafka.dead_letters import StoredRecord
from waylog.kafka.ranges.log_ranges import Range
from waylog.kafka.topics import ERROR, FORWARDING_DEAD_LETTER, LOCATION

#: Refusals that are kept in memory.
REFUSALS_MAX: Final = 200_000


class Refusals(NamedTuple):
    """What was refused of a day."""

    by_readers: list[Refusal]
    by_gateways: list[GatewayRefusal]
    #: By servers of forwardings, and whether these are all that were since the day began.
    by_servers: list[Refusal]
    has_all_by_servers: bool


def read_refusals(
    log: LogReader,
    question: Question,
    unknown: list[str],
    progress: Progress,
    *,
    has_forwardings: bool,
) -> Refusals:
    """Return refusals that may be of the day; those by servers only with `has_forwardings`.

    A reader may have refused a record long after the day. What is left out is said in `unknown`.
    """
    reading = _Refusals(log, question, unknown, progress)
    for topic in (ERROR, *question.dead_letters):
        if topic == FORWARDING_DEAD_LETTER:
            continue
        try:
            reading.read(topic)
        except LogForbidden as error:
            unknown.append(f"what was refused is not known: {error}")
    has_all = not has_forwardings
    if has_forwardings:
        try:
            has_all = reading.read(FORWARDING_DEAD_LETTER)
        except LogForbidden as error:
            unknown.append(f"what servers of forwardings have refused is not known: {error}")
    reading.say_what_is_left_out()
    return Refusals(reading.found, reading.of_gateways, reading.of_servers, has_all)


class _Refusals:
    """The refusals that were found so far."""

    def __init__(
        self, log: LogReader, question: Question, unknown: list[str], progress: Progress
    ) -> None:
        self.found: Final[list[Refusal]] = []
        self.of_servers: Final[list[Refusal]] = []
        self.of_gateways: Final[list[GatewayRefusal]] = []
        self._log = log
        self._question = question
        self._unknown = unknown
        self._progress = progress
        self._key = None if question.device is None else question.device.encode()
        self._untold = 0
        self._left_out = 0

    def read(self, topic: str) -> bool:
        """Read what a topic has since the beginning of the day; return whether it has all."""
        question = self._question
        extents = self._log.watermarks(topic)
        if not extents and topic in question.dead_letters:
            self._unknown.append(f"there is no topic {topic} of dead letters")
        starts = self._log.offsets_at(topic, question.day.from_ms, extents)
        ranges = {each: Range(starts[each], extents[each].high) for each in extents}
        total, done = sum(each.end - each.start for each in ranges.values()), 0
        if question.records_max is not None and total > question.records_max:
            self._unknown.append(
                f"topic {topic} has {total} records since then, too many to be read for this "
                "answer: what was refused is not known; `waylog audit device` reads them all"
            )
            return False
        for records in self._log.read(topic, ranges):
            for record in records:
                # A record without a key was shortened, and may be of any device.
                if self._key is None or record.key() in {self._key, None}:
                    self._take(topic, record)
            done += len(records)
            self._progress(f"topic {topic}", done, total)
        # Before the first one that is left others may have been of the day.
        return not self._left_out and all(
            starts[each] > extents[each].low or not extents[each].low for each in extents
        )

    def _take(self, topic: str, record: StoredRecord) -> None:
        if topic == ERROR:
            refusal = refusal_of(record, self._question.resolver_group)
        elif topic == FORWARDING_DEAD_LETTER:
            refusal = forwarding_refusal_of(record)
        else:
            refusal = connector_refusal_of(record)
            self._untold += refusal is None
        if len(self.found) + len(self.of_servers) + len(self.of_gateways) >= REFUSALS_MAX:
            self._left_out += 1
        elif isinstance(refusal, Refusal):
            # A connector may read other topics too.
            if refusal.topic == LOCATION:
                found = self.of_servers if topic == FORWARDING_DEAD_LETTER else self.found
                found.append(refusal)
        elif refusal is not None and _is_of(refusal, self._question):
            self.of_gateways.append(refusal)

    def say_what_is_left_out(self) -> None:
        """Note what was read and could not be used."""
        if self._untold:
            self._unknown.append(
                f"{self._untold} dead letters do not tell which record they were: set "
                "errors.deadletterqueue.context.headers.enable=true in the connector"
            )
        if self._left_out:
            self._unknown.append(f"{self._left_out} refusals beyond {REFUSALS_MAX} were left out")


def _is_of(refusal: GatewayRefusal, question: Question) -> bool:
    day = question.day
    is_device = question.device is None or refusal.device == question.device
    return is_device and day.from_ms <= refusal.time < day.to_ms
