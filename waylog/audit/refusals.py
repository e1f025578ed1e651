"""Reads what was refused: topic `error`, and dead letters of connectors."""

from __future__ import annotations

from typing import Final

from waylog.audit.evidence import GatewayRefusal, dead_letter_of, refusal_of
from waylog.audit.facts import Refusal
from waylog.audit.log_reader import LogReader, Range
from waylog.audit.question import Progress, Question
from waylog.kafka.topics import ERROR

#: Refusals that are kept in memory.
REFUSALS_MAX: Final = 200_000


def read_refusals(
    log: LogReader,
    question: Question,
    unknown: list[str],
    progress: Progress,
) -> tuple[list[Refusal], list[GatewayRefusal]]:
    """Return refusals by readers, and by gateways, that may be of the day.

    A reader may have refused a record long after the day. What is left out is said in `unknown`.
    """
    found: list[Refusal] = []
    of_gateways: list[GatewayRefusal] = []
    untold = left_out = 0
    key = None if question.device is None else question.device.encode()
    for topic in (ERROR, *question.dead_letters):
        extents = log.extents(topic)
        if not extents and topic != ERROR:
            unknown.append(f"there is no topic {topic} of dead letters")
        starts = log.offsets_at(topic, question.day.from_ms, extents)
        ranges = {each: Range(starts[each], extents[each].high) for each in extents}
        total, done = sum(each.end - each.start for each in ranges.values()), 0
        if question.records_max is not None and total > question.records_max:
            unknown.append(
                f"topic {topic} has {total} records since then, too many to be read for this "
                "answer: what was refused is not known; `waylog audit device` reads them all"
            )
            continue
        for records in log.read(topic, ranges):
            for record in records:
                # A record without a key was shortened, and may be of any device.
                if key is not None and record.key() not in {key, None}:
                    continue
                if topic == ERROR:
                    refusal = refusal_of(record, question.resolver_group)
                else:
                    refusal = dead_letter_of(record)
                    untold += refusal is None
                if len(found) + len(of_gateways) >= REFUSALS_MAX:
                    left_out += 1
                elif isinstance(refusal, Refusal):
                    found.append(refusal)
                elif refusal is not None and _is_of(refusal, question):
                    of_gateways.append(refusal)
            done += len(records)
            progress(f"topic {topic}", done, total)
    if untold:
        unknown.append(
            f"{untold} dead letters do not tell which record they were: set "
            "errors.deadletterqueue.context.headers.enable=true in the connector"
        )
    if left_out:
        unknown.append(f"{left_out} refusals beyond {REFUSALS_MAX} were left out")
    return found, of_gateways


def _is_of(refusal: GatewayRefusal, question: Question) -> bool:
    day = question.day
    is_device = question.device is None or refusal.device == question.device
    return is_device and day.from_ms <= refusal.time < day.to_ms
