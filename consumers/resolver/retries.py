"""Retries of addresses for which the fallback has not answered, through the log.

A fix that needs the fallback is written to a retry topic together with its first address. When it
is due, and still the device's newest fix, the fallback is asked again; if it does not answer then
either, the fix goes on to the topic with the next delay, and after the last one to topic `error`.
As a fix waits in the log, it is not forgotten when a resolver is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from consumers.resolver.newest_fixes import NewestFixes
from consumers.worker.fix_records import NotAFix, fix_of
from consumers.worker.records import InputRecord, OutputRecord
from waylog.kafka.record_headers import headers_of
from waylog.kafka.topics import ERROR
from waylog.messages import Fix, Rejected, encode

#: Headers of a record in a retry topic, both decimal numbers.
DUE_HEADER: Final = "waylog.retry.due"  # ms since 1970
ATTEMPT_HEADER: Final = "waylog.retry.attempt"  # 1 for the first retry

_MS_DIGITS_MAX: Final = 15


class RetryTopic(NamedTuple):
    """A topic whose records all wait for the same time."""

    name: str
    delay_ms: int


RETRY_TOPICS: Final = (
    RetryTopic("resolver-retry-5s", 5_000),
    RetryTopic("resolver-retry-1m", 60_000),
    RetryTopic("resolver-retry-10m", 600_000),
)

#: Resolves fixes again; what still lacks an answer goes to the next retry topic.
ResolveAgain = Callable[
    [list[tuple[int, Fix, int]], Mapping[int, NewestFixes], int], list[OutputRecord]
]


class Retries:
    """The records of retry topics, as a DelayedProcessor."""

    def __init__(self, resolve: ResolveAgain, retry_topics: Sequence[RetryTopic]) -> None:
        """`resolve` gets fixes with their partition and the number of the retry."""
        self.topics: Final = tuple(topic.name for topic in retry_topics)
        self._resolve = resolve

    def due_ms(self, record: InputRecord) -> int:
        """Return when a record is due; at once if it does not say."""
        return _number(record, DUE_HEADER)

    def process(
        self,
        batch: Mapping[int, Sequence[InputRecord]],
        states: Mapping[int, NewestFixes],
        now_ms: int,
    ) -> list[OutputRecord]:
        """Return what comes of fixes that are due, of those that are not outdated."""
        fixes: list[tuple[int, Fix, int]] = []
        for partition, records in batch.items():
            for record in records:
                try:
                    fix = fix_of(record.value())
                except NotAFix:
                    # Another program's record; the fix itself is in topic `location`.
                    continue
                if states[partition].awaits(fix.device, fix.time):
                    fixes.append((partition, fix, _number(record, ATTEMPT_HEADER)))
        return self._resolve(fixes, states, now_ms) if fixes else []


def retry_record(
    fix: Fix, partition: int, attempt: int, now_ms: int, retry_topics: Sequence[RetryTopic]
) -> OutputRecord:
    """Return the record of a fix that is to be resolved again, or its dead letter.

    `attempt` is 1 for the first retry.
    """
    key = fix.device.encode()
    if attempt > len(retry_topics):
        rejected = Rejected(
            reason=f"the fallback did not answer, nor in {len(retry_topics)} retries",
            source="resolver-retry",
            time=now_ms,
            raw=encode(fix),
            device=fix.device,
        )
        return OutputRecord(ERROR, None, key, encode(rejected))
    topic = retry_topics[attempt - 1]
    headers = [
        (DUE_HEADER, b"%d" % (now_ms + topic.delay_ms)),
        (ATTEMPT_HEADER, b"%d" % attempt),
    ]
    return OutputRecord(topic.name, partition, key, encode(fix), headers)


def _number(record: InputRecord, name: str) -> int:
    """Return the number in a header, 0 if there is none."""
    value = dict(headers_of(record)).get(name)
    if not isinstance(value, bytes) or len(value) > _MS_DIGITS_MAX or not value.isdigit():
        return 0
    return int(value)
