"""Classic errors of brokers, and some that ours had, to show that the simulation would find them.

python -m tests.simulation.joined.mutants            how many seeds each of them takes
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from broker_core import errors
from broker_core.cluster.brokers import BrokerControl
from broker_core.cluster.elections import PartitionTarget
from broker_core.coordinator.effects import Append
from broker_core.coordinator.groups.consumer_group import ConsumerGroup
from broker_core.coordinator.groups.group import Group
from broker_core.coordinator.sharing.share_records import SharePartitionKey, StoredState
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.log.log import Log
from broker_core.log.producer_state import ProducerState
from broker_core.protocol.batch_builder import build_batch
from broker_core.quorum.file_store import FileElectionStore
from broker_core.quorum.messages import FetchRequest, Request
from broker_core.quorum.storage import Election
from broker_core.replication.leader import PartitionLeader
from broker_core.server.cluster.quorum_node import Answered, QuorumNode
from broker_core.server.coordination import transactions
from broker_core.server.coordination.groups import Groups, Stored
from broker_core.server.coordination.transactions import Transactions
from broker_core.server.network.peer import Peer
from broker_core.server.partitions.partition import AppendWaiter, Partition, Verification
from broker_core.server.partitions.replica_fetcher import ReplicaFetcher
from broker_core.server.partitions.replica_sessions import ReplicaSession
from broker_core.server.partitions.replicated_partition import ReplicatedPartition
from broker_core.server.sharing.share_coordinator import Read, ShareCoordinator
from broker_core.server.sharing.share_coordinator_client import ShareCoordinatorClient
from tests.simulation import replication_mutants
from tests.simulation.joined.run import search

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )

Patch = tuple[object, str, Any]

SEEDS_MAX = 500


def _no_error(*_: object) -> int:
    return 0


def _nothing(*_: object) -> None:
    return


def _append_offsets(self: Groups, effect: Append) -> None:
    """Write offsets without waiting for the replicas or the disk."""
    now = self.moment()
    rows = [(now.wall_ms, key, value, ()) for key, value in effect.records]
    partition = self._topic.partition_of(effect.group_id)
    if effect.producer is None and partition.is_led:  # type: ignore[attr-defined]
        partition.append(build_batch(rows), now.wall_ms)
        partition.advance()
    self.coordinator.appended(effect, now)


def _do_not_wait(
    self: Transactions, partition: Partition, waiter: AppendWaiter, end_offset: int
) -> None:
    if partition.acknowledges_after_flush:
        self._flusher.request(partition)
    waiter.durable()


def _load_nothing(self: Groups, partition: Partition) -> Iterator[int]:
    yield 0


def _all_is_stable(self: Log) -> int:
    return self.high_watermark


def _nobody_aborted(
    self: Partition, offset: int, max_bytes: int, *, min_one_message: bool
) -> tuple[bytes, list[AbortedTransaction]]:
    return self.log.read_committed(offset, max_bytes, min_one_message=min_one_message)[0], []


def _written_only(self: FileElectionStore, election: Election) -> None:
    import msgspec

    self._disk.write(self._path, [msgspec.json.encode(election)])


def _forget_who_asked_before(self: QuorumNode, request: Request, answered: Answered) -> None:
    former = self._fetches.pop(request, None) if isinstance(request, FetchRequest) else None
    if former is not None:
        former[1].cancel()
    _receive(self, request, answered)


_receive = QuorumNode.receive


def _remove_quietly(self: ReplicaFetcher, partition: ReplicatedPartition) -> None:
    self._unflushed.discard(partition)
    _remove(self, partition)


_remove = ReplicaFetcher.remove


def _count_who_is_proposed(
    self: PartitionLeader, log_end_offset: int, now_ms: Callable[[], int], min_insync_replicas: int
) -> int | None:
    if len(self.maximal_isr) >= self.required_in_sync(min_insync_replicas):
        min_insync_replicas = 0
    return _committed_offset(self, log_end_offset, now_ms, min_insync_replicas)


_committed_offset = PartitionLeader.committed_offset


def _trust_everybody(
    self: BrokerControl, body: BrokerRegistrationRequest, now: float
) -> BrokerRegistrationResponse:
    present = self._image.brokers.get(body["broker_id"])
    if present is not None:
        body = {**body, "previous_broker_epoch": present.epoch}
    return _register(self, body, now)


_register = BrokerControl.register


def _store_nothing(
    self: ShareCoordinatorClient, place: SharePartitionKey, state: StoredState, stored: Stored
) -> None:
    stored(errors.NONE)


def _store_here(
    self: ShareCoordinator, place: SharePartitionKey, state: StoredState | None, stored: Stored
) -> None:
    _store(self, place, state, _nothing)
    stored(errors.NONE)


_store = ShareCoordinator._store


def _read_nothing(
    self: ShareCoordinatorClient, place: SharePartitionKey, leader_epoch: int, read: Read
) -> None:
    read(errors.NONE, None)


def _of_replication(name: str) -> Callable[[], list[Patch]]:
    return replication_mutants.MUTANTS[name]


MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    "acknowledge before the ISR has it": _of_replication("commit before the ISR has it"),
    "commit by majority": _of_replication("commit by majority"),
    "truncate by the high watermark": _of_replication("truncate by the high watermark"),
    "ignore leader epochs on truncation": _of_replication("ignore that logs diverge"),
    "let followers join that are behind": _of_replication("let followers join that are behind"),
    "forget producers when cutting": _of_replication("forget producers when cutting"),
    "acknowledge before the flush": lambda: [
        (
            ReplicatedPartition,
            "_written_offset",
            property(lambda self: self.log.log_end_offset),
        )
    ],
    "forget to sync the vote": lambda: [(FileElectionStore, "save", _written_only)],
    "answer an offset commit before its record is committed": lambda: [
        (Groups, "_append", _append_offsets)
    ],
    "answer the end of a transaction before its state is committed": lambda: [
        (Transactions, "_wait_durable", _do_not_wait)
    ],
    "take batches of fenced producers": lambda: [(ProducerState, "_check_epoch", _nothing)],
    "take repeated batches for new ones": lambda: [(ProducerState, "_check", _nothing)],
    "take offsets of former members": lambda: [
        (Group, "_check_generation", _no_error),
        (ConsumerGroup, "check_member", _no_error),
    ],
    "coordinate groups without reading what is stored": lambda: [(Groups, "_load", _load_nothing)],
    "show records of open transactions": lambda: [
        (Log, "last_stable_offset", property(_all_is_stable))
    ],
    "do not say what was aborted": lambda: [(Partition, "read_committed", _nobody_aborted)],
    "serve who knows another leader epoch": lambda: [(Partition, "check_leader_epoch", _nothing)],
    "never answer a fetch of the metadata that is asked again": lambda: [
        (QuorumNode, "receive", _forget_who_asked_before)
    ],
    "wait for the flush of what is followed no longer": lambda: [
        (ReplicaFetcher, "remove", _remove_quietly)
    ],
    "wait for ever for who is silent": lambda: [(Peer, "_look", _nothing)],
    "go on with groups that could not be stored": lambda: [(Groups, "_read_again", _nothing)],
    "go on in the quorum with a log that cannot be synced": lambda: [
        (QuorumNode, "_end", _nothing)
    ],
    "count who is only proposed for the ISR": lambda: [
        (PartitionLeader, "committed_offset", _count_who_is_proposed)
    ],
    "let who has lost power lead": lambda: [(BrokerControl, "register", _trust_everybody)],
    "forget who has fetched before it became a replica": lambda: [
        (ReplicaSession, "replicas_changed", _nothing)
    ],
    "believe what a coordinator says after the transaction's end": lambda: [
        (Verification, "end", lambda self, code: code)
    ],
    "take a partition that has moved away for a deleted one": lambda: [
        (
            transactions,
            "_AGAIN",
            transactions._AGAIN - {errors.NotLeaderOrFollower.code},
        ),
    ],
    "nobody but the ISR may lead": lambda: [(PartitionTarget, "_keep_eligible", _nothing)],
    "share: answer before it is stored": lambda: [
        (ShareCoordinatorClient, "write", _store_nothing)
    ],
    "share: store without waiting for the others": lambda: [
        (ShareCoordinator, "_store", _store_here)
    ],
    "share: begin anew with every leader": lambda: [
        (ShareCoordinatorClient, "read", _read_nothing)
    ],
    "share: let whoever led before store": lambda: [
        (
            ShareCoordinator,
            "write",
            lambda self, place, state, stored: self._store(place, state, stored),
        )
    ],
}

#: Mutants of share groups, which can only be found in runs with a share group.
OF_SHARE_GROUPS = frozenset(name for name in MUTANTS if name.startswith("share: "))


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run with a mutant in place."""
    with ExitStack() as stack:
        for target, attribute, replacement in MUTANTS[name]():
            stack.enter_context(patch.object(target, attribute, replacement))
        yield


def main() -> int:
    """Print how many seeds each mutant takes; return 1 if one is not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of", choices=sorted(MUTANTS), help="this one only")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many at most")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "tests.simulation.joined.mutants", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | {"PYTHONHASHSEED": "0"})
    missed = 0
    for name in [arguments.of] if arguments.of else MUTANTS:
        with planted(name):
            seeds = range(arguments.first, arguments.first + arguments.seeds)
            found = search(seeds, has_share_group=name in OF_SHARE_GROUPS)
        missed += found is None
        took = "not found" if found is None else f"found by seed {found}"
        print(f"{name}: {took}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
