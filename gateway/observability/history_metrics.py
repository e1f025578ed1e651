"""How the job is that writes the history, for Prometheus, as its report says."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gateway.observability.metrics import GatewayMetrics
from waylog.history.job_report import JobReport, read_report
from waylog.observability.telemetry import now_ms


def register_history(metrics: GatewayMetrics, folder: Path) -> None:
    """Register gauges of the job that writes a history; NaN where there is none."""

    def report(value: Callable[[JobReport], float | None]) -> float:
        found = read_report(folder)
        known = None if found is None else value(found)
        return math.nan if known is None else known

    metrics.gauge(
        "history_written_age_seconds",
        "Time since the history job wrote rows last.",
        partial(report, lambda job: job.wrote and (now_ms() - job.wrote) / 1000),
    )
    metrics.gauge(
        "history_waiting_seconds",
        "For how long records wait for the history job without any being written.",
        partial(report, lambda job: job.waiting_s),
    )
    metrics.gauge(
        "history_report_age_seconds",
        "Time since the history job said how it is.",
        partial(report, lambda job: (now_ms() - job.time) / 1000),
    )
