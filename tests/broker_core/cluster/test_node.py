"""One node's view of the metadata, on a log in files."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from broker_core.cluster.controller import Controller
from broker_core.cluster.node import SNAPSHOT_PAUSE_S, MetadataNode
from broker_core.cluster.records import ClusterRecord
from broker_core.cluster.settings import ControllerSettings
from broker_core.environment import Buffer, Environment, SystemClock, SystemDisk
from broker_core.quorum.entries import ReplicaKey
from broker_core.quorum.file_store import FileElectionStore, FileMetadataLog
from broker_core.quorum.replica import QuorumReplica
from broker_core.quorum.settings import QuorumSettings

ONLY = ReplicaKey(0, "")
#: Seconds: the time of an election is over.
LATER = 100.0


class DiskWithoutSnapshots(SystemDisk):
    """A disk that has no room for a snapshot on request."""

    def __init__(self) -> None:
        self.is_full = True
        self.tries = 0

    def replace(self, path: Path, data: Buffer) -> None:
        if path.name == "snapshot":
            self.tries += 1
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        super().replace(path, data)


def started(directory: Path, disk: SystemDisk) -> MetadataNode:
    """Return an only voter that leads."""
    environment = Environment(SystemClock(), disk)
    randomness = random.Random(1)
    replica = QuorumReplica(
        ONLY,
        FileMetadataLog(directory, environment, is_only_voter=True),
        FileElectionStore(directory, environment, is_only_voter=True),
        frozenset({ONLY}),
        QuorumSettings(),
        randomness,
        0.0,
    )
    node = MetadataNode(replica, ControllerSettings(), randomness, snapshot_entries=5)
    node.tick(LATER)
    node.after_event(LATER)
    assert node.controller is not None
    return node


def decide(node: MetadataNode, now: float) -> None:
    """Have the controller write something, and check that it is committed."""
    decided: list[bool] = []

    def write(controller: Controller) -> None:
        controller.writer.write([ClusterRecord(f"at {now}")])

    node.decide(write, decided.append)
    node.after_event(now)
    assert decided == [True]


def test_a_snapshot_that_cannot_be_written_is_tried_again_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = DiskWithoutSnapshots()
    node = started(tmp_path, disk)
    for _ in range(10):
        decide(node, LATER)
    assert disk.tries == 1
    # A start goes on with the longer log, too.
    node = started(tmp_path, disk)
    now = LATER
    for _ in range(3):
        now += SNAPSHOT_PAUSE_S
        decide(node, now)
        decide(node, now)
    assert disk.tries == 5
    assert caplog.text.count("a snapshot of them cannot be written") == 2  # by each process
    assert node.replica.log.snapshot is None
    disk.is_full = False
    decide(node, now + SNAPSHOT_PAUSE_S)
    assert node.replica.log.snapshot is not None
    assert node.replica.log.start_offset == node.image.offset
    assert started(tmp_path, disk).image.cluster_id == f"at {now + SNAPSHOT_PAUSE_S}"
