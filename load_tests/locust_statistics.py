"""Adds many samples to Locust's statistics at once.

An event for each message costs more than sending the message. Locust's own entries are filled the
way their `log` does it, so that its console, web page, CSV files and distributed mode work as
usual. Failures still go through the event, for its listeners.
"""

from __future__ import annotations

import time
from typing import Any, Final

from load_tests.latency import Pairs

_FAILURES_SHOWN: Final = 20


def add_batch(
    environment: Any, method: str, name: str, pairs: Pairs, bytes_each: float = 0.0
) -> None:
    """Count `pairs` (microseconds, count) as successful requests of this second."""
    count = sum(number for _, number in pairs)
    if not count:
        return
    stats = environment.stats
    now = time.time()
    for entry in (stats.total, stats.get(name, method)):
        _add_to_entry(entry, pairs, count, int(bytes_each * count), now)


def add_failures(environment: Any, method: str, name: str, error: str, count: int) -> None:
    """Report failures; if there are very many, only the first ones are reported."""
    for _ in range(min(count, _FAILURES_SHOWN)):
        environment.events.request.fire(
            request_type=method,
            name=name,
            response_time=0,
            response_length=0,
            exception=ConnectionError(error),
            context={},
        )


def _add_to_entry(entry: Any, pairs: Pairs, count: int, size: int, now: float) -> None:
    from locust.stats import bucket_response_time

    second = int(now)
    last = entry.last_request_timestamp
    if entry.use_response_times_cache and last is not None and second > int(last):
        entry._cache_response_times(second - 1)
    entry.num_requests += count
    entry.num_reqs_per_sec[second] = entry.num_reqs_per_sec.get(second, 0) + count
    entry.last_request_timestamp = now
    entry.total_content_length += size
    for microseconds, number in pairs:
        milliseconds = microseconds / 1000
        entry.total_response_time += milliseconds * number
        if entry.min_response_time is None or milliseconds < entry.min_response_time:
            entry.min_response_time = milliseconds
        entry.max_response_time = max(entry.max_response_time, milliseconds)
        bucket = bucket_response_time(milliseconds)
        entry.response_times[bucket] = entry.response_times.get(bucket, 0) + number
