"""Counters of a replay: what was sent, and what the platform has accepted."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import IO, Any

import msgspec

from waylog.cli import CommandError
from waylog.replay.senders.wire import Outgoing


class Tally:
    """Counts fixes; can also write each acknowledged fix to a file as a line of JSON."""

    def __init__(self, acknowledged_file: Path | None = None) -> None:
        self.sent = 0
        self.acknowledged = 0
        self.rejected = 0
        self.retries = 0
        self.devices: set[str] = set()
        self.last_answer = time.monotonic()
        self.trouble: str | None = None  # the reason why the last attempt failed
        self._encoder = msgspec.json.Encoder()
        self._file: IO[bytes] | None = None
        if acknowledged_file is not None:
            try:
                self._file = acknowledged_file.open("wb")
            except OSError as error:
                raise CommandError(f"{acknowledged_file}: {error.strerror}") from error

    def fix_sent(self, fix: Outgoing) -> None:
        """Count a fix that is sent for the first time."""
        self.sent += 1
        self.devices.add(fix.name)

    def fix_acknowledged(self, fix: Outgoing) -> None:
        """Count a fix that the platform has acknowledged."""
        self.acknowledged += 1
        self._answered()
        if self._file is not None:
            line = {
                "device": fix.device,
                "time": fix.time,
                "lat": fix.recorded.lat,
                "lon": fix.recorded.lon,
                "id": fix.id,
            }
            self._file.write(self._encoder.encode(line) + b"\n")

    def fix_rejected(self) -> None:
        """Count a fix that the platform has refused for good."""
        self.rejected += 1
        self._answered()

    def attempt_failed(self, reason: str, fixes: int = 1) -> None:
        """Count fixes that have to be sent again."""
        self.retries += fixes
        self.trouble = reason

    def flush(self) -> None:
        """Flush the file to the operating system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    async def watch(self, patience_s: float) -> None:
        """Run for ever; raises CommandError after `patience_s` without any answer."""
        while True:
            waiting = self.sent > self.acknowledged + self.rejected
            silence_s = time.monotonic() - self.last_answer
            if not waiting:
                self._answered()
            elif silence_s > patience_s:
                trouble = f": {self.trouble}" if self.trouble else ""
                raise CommandError(f"no answer for {silence_s:.0f} s{trouble}")
            await asyncio.sleep(min(1.0, patience_s / 4))

    def summary(self) -> dict[str, Any]:
        """Return the counters, for `--json`."""
        return {
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "rejected": self.rejected,
            "retries": self.retries,
            "devices": len(self.devices),
        }

    def _answered(self) -> None:
        self.last_answer = time.monotonic()
        self.trouble = None
