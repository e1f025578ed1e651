"""Finds addresses from an older index, for devices that send no more fixes.

A thread reads the resolver's own topic once for each partition and index. The resolver takes the
stale addresses from here, a few at a time, and writes the new ones itself. It stays the only
writer of its topic, so a renewed address cannot replace that of a newer fix.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import KafkaException

from consumers.worker.partitions import PartitionReader
from waylog.malformed import MALFORMED
from waylog.process.threads import Rounds, start_thread

logger = logging.getLogger(__name__)

_WAITING_MAX: Final = 2000
_PAUSE_S: Final = 0.2
#: Seconds after which a partition is read again that could not be read.
_RETRY_S: Final = 10.0


class ResolvedFix(msgspec.Struct, gc=False):
    """The members of an address record that are needed to resolve its fix again."""

    device: str
    fix_id: str
    time: int
    lat: float
    lon: float
    index_version: str = ""

    @property
    def id(self) -> str:
        """The fix's id, as a Fix has it."""
        return self.fix_id


_decode = msgspec.json.Decoder(ResolvedFix).decode


class _Scan(NamedTuple):
    partition: int
    index_version: str


class Renewal:
    """A finder of stale addresses. Only the resolver's thread may call `take`."""

    def __init__(
        self,
        config: dict[str, Any],
        topic: str,
        *,
        rate_per_s: float = 500.0,
        retry_s: float = _RETRY_S,
    ) -> None:
        """`config` is a client's. `rate_per_s` bounds the addresses that `take` gives a second."""
        self._retry_s = retry_s
        self._config = config
        self._topic = topic
        self._rate_per_s = rate_per_s
        self._wanted: set[_Scan] = set()
        self._scans: queue.SimpleQueue[_Scan | None] = queue.SimpleQueue()
        self._found: queue.Queue[tuple[_Scan, ResolvedFix]] = queue.Queue(_WAITING_MAX)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._taken_ms: int | None = None

    def take(
        self, partitions: Iterable[int], index_version: str, now_ms: int
    ) -> list[tuple[int, ResolvedFix]]:
        """Return the fixes of these partitions to look up now with this index.

        A fix comes with its partition.
        """
        owned = set(partitions)
        # A partition that was revoked and came back is read again: its other owner may have
        # written to it.
        self._wanted = {each for each in self._wanted if each.partition in owned}
        for partition in owned:
            scan = _Scan(partition, index_version)
            if scan not in self._wanted:
                self._wanted.add(scan)
                self._begin(scan)
        elapsed_ms = now_ms - (self._taken_ms if self._taken_ms is not None else now_ms)
        # After a pause, at most the share of one second.
        count = int(self._rate_per_s * min(elapsed_ms, 1000) / 1000)
        if count or self._taken_ms is None:
            self._taken_ms = now_ms
        taken: list[tuple[int, ResolvedFix]] = []
        while len(taken) < count:
            try:
                scan, fix = self._found.get_nowait()
            except queue.Empty:
                break
            if scan in self._wanted and scan.index_version == index_version:
                taken.append((scan.partition, fix))
        return taken

    def close(self) -> None:
        """Stop, also in the middle of a partition."""
        self._stopping.set()
        self._scans.put(None)
        if self._thread is not None:
            self._thread.join(5.0)

    def _begin(self, scan: _Scan) -> None:
        self._scans.put(scan)
        if self._thread is None:
            self._thread = start_thread(self._run, "renewal", may_end=self._stopping.is_set)

    def _run(self) -> None:
        rounds = Rounds("reading addresses to renew", expected=(KafkaException,))
        while not self._stopping.is_set() and (scan := self._scans.get()) is not None:
            if scan in self._wanted and not rounds.once(partial(self._scan, scan)):
                # Behind the others, which may be readable.
                self._scans.put(scan)
                self._stopping.wait(self._retry_s)

    def _scan(self, scan: _Scan) -> None:
        reader = PartitionReader(self._config, f"{self._config['client.id']}-none")
        stale: dict[str, ResolvedFix] = {}
        try:
            for records in reader.batches(
                self._topic,
                scan.partition,
                *reader.bounds(self._topic, scan.partition),
                stopped=self._stopping.is_set,
            ):
                for record in records:
                    _sort(stale, record.key(), record.value(), scan.index_version)
        finally:
            reader.close()
        if stale:
            logger.info("%d addresses of partition %d are renewed", len(stale), scan.partition)
        for fix in stale.values():
            while not self._stopping.is_set():
                try:
                    self._found.put((scan, fix), timeout=_PAUSE_S)
                    break
                except queue.Full:
                    continue


def _sort(
    stale: dict[str, ResolvedFix], key: bytes | None, value: bytes | None, index_version: str
) -> None:
    """Remember the newest record of a device if it is stale, else forget the device."""
    if value is None:
        stale.pop((key or b"").decode("utf-8", "replace"), None)
        return
    try:
        fix = _decode(value)
    except MALFORMED:
        return
    # The version of an address from the fallback has a suffix that begins with a plus.
    if fix.index_version.partition("+")[0] != index_version:
        stale[fix.device] = fix
    else:
        stale.pop(fix.device, None)
