"""What has gone wrong in a task so far, by the names of Kafka Connect's metrics."""

from __future__ import annotations

import msgspec


class ErrorCounters(msgspec.Struct):
    """Metrics of `kafka.connect:type=task-error-metrics`."""

    total_record_failures: int = 0  # failed attempts
    total_record_errors: int = 0  # operations that failed for good
    total_records_skipped: int = 0  # tolerated
    total_retries: int = 0
    total_errors_logged: int = 0
    deadletterqueue_produce_requests: int = 0
    deadletterqueue_produce_failures: int = 0
    last_error_timestamp: int = 0  # ms since 1970-01-01 UTC; 0: none yet
