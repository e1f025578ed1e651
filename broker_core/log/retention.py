"""Selection of the segments that retention deletes: by age, by size, or after DeleteRecords."""

from __future__ import annotations

from broker_core.log.config import LogConfig
from broker_core.log.segment import Segment


def count_deletable(
    segments: list[Segment],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """Return how many segments, from the oldest on, can be deleted.

    The age of a segment is that of its newest record, as in Kafka, or, without timestamps, the time
    since its creation as known to this process. A segment that is not fully committed stays. The
    active segment is counted only if it holds records; the caller then rolls the log first.
    """
    count = 0
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    for segment in segments:
        if segment.size == 0 or segment.next_offset > high_watermark:
            break
        is_last = segment is segments[-1]
        if config.deletes and _is_expired(segment, config, now_ms):
            count += 1
        elif config.deletes and config.retention_bytes >= 0 and excess >= segment.size:
            if is_last:
                break
            count += 1
        elif segment.next_offset <= log_start_offset and not is_last:
            count += 1
        else:
            break
        excess -= segment.size
    return count


def _is_expired(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    if config.retention_ms < 0:
        return False
    newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
    return now_ms - newest > config.retention_ms
