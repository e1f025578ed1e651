from __future__ import annotations

import pytest

from broker_core import errors
from broker_core.cluster.image import TOPIC_RESOURCE
from broker_core.cluster.records import NO_LEADER
from broker_core.cluster.settings import ControllerSettings
from tests.broker_core.cluster.conftest import Bench

PREFERRED, UNCLEAN = 0, 1


def test_a_leader_says_who_is_in_sync(bench: Bench) -> None:
    bench.run(1, 2, 3)
    bench.create("t", [1, 2, 3])
    assert bench.alter(1, "t", 1, 2) == errors.NONE
    partition = bench.partition("t")
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((1, 2), 0, 1)


def test_who_is_behind_or_not_the_leader_changes_nothing(bench: Bench) -> None:
    bench.run(1, 2, 3)
    bench.create("t", [1, 2, 3])
    bench.alter(1, "t", 1, 2)
    assert bench.alter(1, "t", 1, partition_epoch=0) == errors.InvalidUpdateVersion.code
    assert bench.alter(1, "t", 1, partition_epoch=9) == errors.NotController.code
    assert bench.alter(1, "t", 1, leader_epoch=9) == errors.NotController.code
    assert bench.alter(2, "t", 2) == errors.InvalidRequest.code
    assert bench.alter(1, "t", 2) == errors.InvalidRequest.code
    assert bench.alter(1, "t", 1, 7) == errors.InvalidRequest.code
    bench.kill(1)
    bench.run(1)
    assert bench.alter(1, "t", 1, leader_epoch=0) == errors.FencedLeaderEpoch.code
    assert bench.partition("t").isr == (2,)


def test_a_fenced_broker_does_not_come_into_sync(bench: Bench) -> None:
    bench.run(1, 2)
    bench.create("t", [1, 2])
    bench.kill(2)
    assert bench.alter(1, "t", 1, 2) == errors.IneligibleReplica.code
    former = bench.image.brokers[2].epoch
    bench.register(2, process=2)
    bench.beat(2)
    of_former = [{"broker_id": 1, "broker_epoch": -1}, {"broker_id": 2, "broker_epoch": former}]
    assert bench.alter(1, "t", new_isr_with_epochs=of_former) == errors.IneligibleReplica.code
    assert bench.alter(1, "t", 1, 2) == errors.NONE


def test_an_unclean_leader_is_elected_only_where_that_is_allowed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.run(1, 2)
    bench.create("kept", [1, 2])
    bench.create("given-up", [1, 2], unclean_leader_election_enable="true")
    for name in ("kept", "given-up"):
        bench.alter(1, name, 1)
    bench.kill(1)
    assert bench.partition("kept").leader == NO_LEADER
    partition = bench.partition("given-up")
    assert (partition.leader, partition.isr, partition.recovering) == (2, (2,), True)
    assert "may lack acknowledged records" in caplog.text
    assert bench.alter(2, "given-up", 2) == errors.NONE
    assert not bench.partition("given-up").recovering


def test_who_leaves_too_few_in_sync_may_still_lead(bench: Bench) -> None:
    bench.run(1, 2, 3)
    bench.create("t", [1, 2, 3], min_insync_replicas="2")
    bench.kill(3)
    assert (bench.partition("t").isr, bench.partition("t").elr) == ((1, 2), ())
    bench.kill(1)
    assert (bench.partition("t").isr, bench.partition("t").elr) == ((2,), (1,))
    bench.kill(2)
    # Only the process was killed: the new one has everything that the old one wrote.
    bench.register(1, process=2, former_epoch=bench.image.brokers[1].epoch)
    bench.beat(1)
    partition = bench.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (1, (1,), (2,))
    bench.run(3)
    assert bench.alter(1, "t", 1, 3) == errors.NONE
    assert (bench.partition("t").isr, bench.partition("t").elr) == ((1, 3), ())


def test_who_may_have_lost_something_leads_only_if_nobody_else_can(bench: Bench) -> None:
    bench.run(1, 2)
    bench.create("t", [1, 2], min_insync_replicas="2")
    bench.kill(1)
    bench.kill(2)
    assert (bench.partition("t").isr, bench.partition("t").elr) == ((2,), (1,))
    bench.register(2, process=2)
    bench.beat(2)
    partition = bench.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (1,), ())
    bench.register(1, process=2)
    bench.beat(1)
    assert bench.partition("t").leader == 1


def test_nobody_is_eligible_once_less_replicas_are_enough(bench: Bench) -> None:
    bench.run(1, 2)
    for name in ("t", "other"):
        bench.create(name, [1, 2], min_insync_replicas="2")
    bench.kill(2)
    assert bench.partition("t").elr == (2,)
    bench.controller.topics.configure(TOPIC_RESOURCE, "t", {"min.insync.replicas": "1"})
    assert (bench.partition("t").elr, bench.partition("other").elr) == ((), (2,))


def test_the_preferred_replica_leads_again_by_itself() -> None:
    bench = Bench(ControllerSettings(session_timeout=1e9, rebalance_interval=300.0))
    bench.run(1, 2)
    bench.create("t", [1, 2])
    bench.kill(1)
    bench.run(1)
    bench.alter(2, "t", 2, 1)
    bench.controller.tick(bench.now + 299.0)
    assert bench.partition("t").leader == 2
    bench.controller.tick(bench.now + 300.0)
    assert bench.partition("t").leader == 1


def test_an_election_that_is_asked_for_says_why_it_is_not_held(bench: Bench) -> None:
    bench.run(1, 2)
    bench.create("t", [1, 2])
    with pytest.raises(errors.ElectionNotNeeded):
        bench.controller.partitions.elect("t", 0, PREFERRED)
    with pytest.raises(errors.ElectionNotNeeded):
        bench.controller.partitions.elect("t", 0, UNCLEAN)
    bench.alter(1, "t", 1)
    bench.kill(1)
    bench.kill(2)
    with pytest.raises(errors.EligibleLeadersNotAvailable):
        bench.controller.partitions.elect("t", 0, UNCLEAN)
    bench.register(2, process=2)
    bench.beat(2)
    bench.controller.partitions.elect("t", 0, UNCLEAN)
    assert bench.partition("t").leader == 2


def test_a_move_ends_when_the_new_replicas_are_in_sync(bench: Bench) -> None:
    bench.run(1, 2, 3, 4)
    bench.create("t", [1, 2])
    bench.controller.partitions.reassign("t", 0, [3, 4])
    moving = bench.partition("t")
    assert (moving.replicas, moving.adding, moving.removing) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert bench.alter(1, "t", 1, 2, 3) == errors.NONE
    assert bench.partition("t").is_reassigning
    assert bench.alter(1, "t", 1, 2, 3, 4) == errors.NewLeaderElected.code
    moved = bench.partition("t")
    assert (moved.replicas, moved.isr, moved.leader) == ((3, 4), (3, 4), 3)
    assert not moved.is_reassigning
    assert moved.leader_epoch == 1


def test_a_move_can_be_taken_back(bench: Bench) -> None:
    bench.run(1, 2, 3)
    bench.create("t", [1, 2])
    bench.controller.partitions.reassign("t", 0, [3])
    bench.controller.partitions.reassign("t", 0, None)
    assert bench.partition("t").replicas == (1, 2)
    with pytest.raises(errors.NoReassignmentInProgress):
        bench.controller.partitions.reassign("t", 0, None)


def test_the_only_replica_in_sync_is_not_moved_away(bench: Bench) -> None:
    """Found by the simulation, seed 29: the ISR contained none of the replicas."""
    bench.run(3, 4, 5)
    bench.create("t", [4])
    bench.controller.partitions.reassign("t", 0, [3, 5])
    bench.alter(4, "t", 4, 3)
    bench.kill(4)
    assert bench.partition("t").isr == (3,)
    with pytest.raises(errors.InvalidReplicaAssignment):
        bench.controller.partitions.reassign("t", 0, [4])
    with pytest.raises(errors.InvalidReplicaAssignment):
        bench.controller.partitions.reassign("t", 0, None)
    assert bench.partition("t").leader == 3
