"""One node's view of the metadata: its log replica, the committed image, and the controller.

The controller exists only while the node leads the quorum. There is no I/O here, as in the replica
that it drives: call `after_event` after each request, response or tick of the replica.
"""

from __future__ import annotations

import base64
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from broker_core import errors
from broker_core.cluster.controller import Controller
from broker_core.cluster.image import ClusterImage, ImageChanges
from broker_core.cluster.records import ClusterRecord, MetadataRecord, decode_records
from broker_core.cluster.settings import ControllerSettings
from broker_core.cluster.snapshot import decode_image, encode_image
from broker_core.quorum.entries import EntryKind
from broker_core.quorum.leader import Leader
from broker_core.quorum.replica import QuorumReplica
from waylog.process.log_throttle import RepeatedFailure
from waylog.process.storage_trouble import is_disk_full

logger = logging.getLogger(__name__)

_ENTRIES_AT_ONCE: Final = 1000
#: Number of entries behind the last snapshot at which the next one is taken.
SNAPSHOT_ENTRIES: Final = 10_000
#: Seconds until a snapshot that could not be written is tried again.
SNAPSHOT_PAUSE_S: Final = 60.0

#: Called with True when a decision is committed; with False if its outcome is not known yet.
Decided = Callable[[bool], None]


class NotDecided(Exception):
    """The only voter's disk is full: nothing of the decision is in the log, or holds."""

    def __init__(self, reason: errors.KafkaStorageError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class MetadataNode:
    """A voter or an observer of the quorum, with the image that its log produces."""

    def __init__(
        self,
        replica: QuorumReplica,
        settings: ControllerSettings,
        randomness: random.Random,
        *,
        snapshot_entries: int = SNAPSHOT_ENTRIES,
        cluster_id: str | None = None,
        first_records: Sequence[MetadataRecord] = (),
    ) -> None:
        """`first_records` are the first records of an empty metadata log.

        `cluster_id` is the new cluster's id; None is a random one.
        """
        self.replica = replica
        #: The committed state, as far as this node knows it.
        self.image = ClusterImage()
        #: None unless this node is the active controller.
        self.controller: Controller | None = None
        self._settings = settings
        self._random = randomness
        self._snapshot_entries = snapshot_entries
        self._snapshot_failure = RepeatedFailure()
        self._next_snapshot_at = float("-inf")
        self._cluster_id = cluster_id
        self._first_records = first_records
        self._changes: ImageChanges | None = None
        # (offset that must be committed, callback that waits for it), in order.
        self._waiting: deque[tuple[int, Decided]] = deque()
        self._load_snapshot()

    # -------------------------------------------------------------------------------------- for all

    @property
    def is_caught_up(self) -> bool:
        """Tell whether everything that is known to be committed has been applied."""
        return self.replica.high_watermark == self.image.offset

    def take_changes(self) -> ImageChanges | None:
        """Return and clear the changes of the image since the last call; None if there are none."""
        changes, self._changes = self._changes, None
        return changes

    def next_deadline(self) -> float:
        """Return when `tick` has something to do if nothing happens before."""
        deadline = self.replica.next_deadline()
        if self.controller is not None:
            deadline = min(deadline, self.controller.next_deadline())
        return deadline

    def tick(self, now: float) -> None:
        """Do everything that is due."""
        self.replica.tick(now)
        if self.controller is not None and self.replica.is_leader:
            self._synchronize(self.controller)
            self.controller.tick(now)
            with suppress(NotDecided):
                self._append(self.controller)

    def after_event(self, now: float) -> None:
        """Follow the replica after an event: apply entries, become active or resign, respond."""
        self._load_snapshot()
        self._apply_committed()
        role = self.replica.role
        if not isinstance(role, Leader):
            self._resign()
        elif self.controller is None and self.image.offset > role.start_offset:
            # Its own first entry is committed, and so are all entries before.
            self._become_active(now)
            # A single voter commits at once what it has appended just now.
            self._apply_committed()
        self._answer()
        entries = self.image.offset - self.replica.log.start_offset
        if entries >= self._snapshot_entries and now >= self._next_snapshot_at:
            self._shorten(now)

    def _shorten(self, now: float) -> None:
        try:
            self.take_snapshot()
        except OSError as error:
            # The log has everything that the snapshot would have, and it may have room for more.
            self._next_snapshot_at = now + SNAPSHOT_PAUSE_S
            if self._snapshot_failure.is_new(error):
                logger.error(
                    "the metadata log goes on with %d entries, a snapshot of them cannot be "
                    "written, which is tried every %.0f s: %s",
                    self.image.offset - self.replica.log.start_offset,
                    SNAPSHOT_PAUSE_S,
                    error,
                )
        else:
            self._snapshot_failure.succeeded()

    def take_snapshot(self) -> None:
        """Replace the applied entries with a snapshot; raises OSError, and the log is as it was."""
        if self.image.offset > self.replica.log.start_offset:
            self.replica.take_snapshot(self.image.offset, encode_image(self.image))

    # --------------------------------------------------------------------------- for the controller

    def decide(self, action: Callable[[Controller], None], decided: Decided) -> None:
        """Run an action on the active controller; call `decided` when its result is committed.

        This includes actions that only read, since they may read what is not committed yet. Raises
        NotController, NotDecided, and what the action raises.
        """
        controller = self.controller
        if controller is None or not self.replica.is_leader:
            raise errors.NotController()
        self._synchronize(controller)
        try:
            action(controller)
        finally:
            self._append(controller)
        self._waiting.append((self.replica.log.end_offset, decided))

    def _synchronize(self, controller: Controller) -> None:
        # Control entries of the quorum take offsets too.
        controller.image.offset = self.replica.log.end_offset

    def _append(self, controller: Controller) -> None:
        entries = controller.writer.take_entries()
        if not entries:
            return
        end_offset = self.replica.log.end_offset
        try:
            last = self.replica.append(entries)
        except OSError as error:
            is_unchanged = self.replica.log.end_offset == end_offset
            is_alone = len(self.replica.voters) == 1
            if not (is_alone and is_unchanged and is_disk_full(error)):
                raise
            # Nobody else could decide instead, so this controller goes on, without what it had
            # just decided: everything before is committed.
            controller.forget_decisions(self.image.copy())
            reason = errors.KafkaStorageError(f"the metadata log: {error.strerror}")
            raise NotDecided(reason) from error
        if last + 1 != controller.image.offset:
            raise RuntimeError(f"entry {last} was decided at {controller.image.offset - 1}")

    def _become_active(self, now: float) -> None:
        self.controller = Controller(self.image.copy(), self._settings, self._random, now)
        if self.image.cluster_id is None:
            self._synchronize(self.controller)
            cluster_id = self._cluster_id or self._new_cluster_id()
            self.controller.writer.write([ClusterRecord(cluster_id), *self._first_records])
            self._append(self.controller)

    def _new_cluster_id(self) -> str:
        return base64.urlsafe_b64encode(self._random.randbytes(16)).rstrip(b"=").decode()

    def _resign(self) -> None:
        self.controller = None
        waiting, self._waiting = self._waiting, deque()
        for _, decided in waiting:
            decided(False)

    def _answer(self) -> None:
        committed = self.replica.high_watermark or 0
        while self._waiting and self._waiting[0][0] <= committed:
            self._waiting.popleft()[1](True)

    # ---------------------------------------------------------------------------------------- image

    def _load_snapshot(self) -> None:
        snapshot = self.replica.log.snapshot
        if snapshot is not None and snapshot.end_offset > self.image.offset:
            self.image = decode_image(snapshot.data, snapshot.end_offset)
            self._changes = ImageChanges(everything=True)

    def _apply_committed(self) -> None:
        committed = self.replica.high_watermark or 0
        while self.image.offset < committed:
            offset = self.image.offset
            count = min(committed - offset, _ENTRIES_AT_ONCE)
            self._changes = self._changes or ImageChanges()
            for entry in self.replica.log.read(offset, count):
                if entry.kind is EntryKind.DATA:
                    self.image.apply(offset, decode_records(entry.value), self._changes)
                offset += 1
                self.image.offset = offset
