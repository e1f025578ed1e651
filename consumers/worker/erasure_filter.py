"""Leaves out records and results of erased devices (waylog.history.erasures)."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from confluent_kafka import Message

from consumers.worker.records import OutputRecord
from waylog.history.erasures import ErasureLog
from waylog.malformed import MALFORMED
from waylog.messages import decode_address
from waylog.process.watchdog import Watchdog


class ErasureFilter:
    """A filter that keeps records that are read again, and late results, from restoring an
    erased device.
    """

    def __init__(self, bootstrap_servers: str, state_topic: str) -> None:
        self._state_topic = state_topic
        self._log = ErasureLog(bootstrap_servers)
        self._erasures = self._log.erasures

    def wait(self, watchdog: Watchdog, stopping: threading.Event | None = None) -> bool:
        """Wait until all erasures in the log have been read; raises LogUnreachable.

        Returns False if `stopping` is set before.
        """
        return self._log.wait(stopping=stopping, alive=watchdog.alive)

    def close(self) -> None:
        """Stop following the log of erasures."""
        self._log.close()

    def without(self, batch: dict[int, list[Message]]) -> dict[int, list[Message]]:
        """Return the records by partition, without those that an erasure covers."""
        if not self._erasures:
            return batch
        return {
            partition: [record for record in records if not self._is_erased(record)]
            for partition, records in batch.items()
        }

    def _is_erased(self, record: Message) -> bool:
        key = record.key()
        written = record.timestamp()[1]
        return key is not None and self._erasures.covers(key.decode("utf-8", "replace"), written)

    def without_results(self, outputs: Iterable[OutputRecord]) -> Iterable[OutputRecord]:
        """Return the results, without the addresses of fixes that are erased."""
        if not self._erasures:
            return outputs
        return (output for output in outputs if not self._is_of_erased(output))

    def _is_of_erased(self, output: OutputRecord) -> bool:
        key, value = output.key, output.value
        if output.topic != self._state_topic or key is None or value is None:
            return False
        device = key.decode("utf-8", "replace")
        if device not in self._erasures:
            return False
        try:
            return self._erasures.covers(device, decode_address(value).time)
        except MALFORMED:
            return False
