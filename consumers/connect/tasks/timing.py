"""How often, and for how long, tasks store offsets."""

from __future__ import annotations

import msgspec


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Times of a worker's tasks, in seconds."""

    flush_interval_s: float = 60.0  # offset.flush.interval.ms
    flush_timeout_s: float = 5.0  # offset.flush.timeout.ms
