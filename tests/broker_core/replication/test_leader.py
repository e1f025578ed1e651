"""The leader's state of a partition: the committed offset and the in-sync replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker_core.cluster.image import PartitionImage
from broker_core.replication.leader import IsrProposal, PartitionLeader

LAG_MS = 1000


class Bench:
    """Broker 1 as leader of a partition with the replicas 1, 2 and 3."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3), log_end_offset: int = 100) -> None:
        self.now = 50_000
        self.end = log_end_offset
        self.dead: set[int] = set()
        self.image = PartitionImage((1, 2, 3), isr, 1, leader_epoch=4, partition_epoch=7)
        self.high_watermark = 0
        self.leader = PartitionLeader(
            1,
            self.image,
            log_end_offset=log_end_offset,
            now_ms=self.now,
            lag_ms=LAG_MS,
            is_eligible=lambda broker_id, epoch: (
                broker_id not in self.dead and epoch in {-1, 30 + broker_id}
            ),
        )

    def fetch(self, broker_id: int, offset: int) -> bool:
        return self.leader.fetched(
            broker_id,
            offset,
            log_start_offset=0,
            broker_epoch=30 + broker_id,
            log_end_offset=self.end,
            now_ms=self.now,
        )

    def committed(self, min_insync_replicas: int = 1) -> int | None:
        return self.leader.committed_offset(self.end, lambda: self.now, min_insync_replicas)

    def decide(self, *isr: int) -> None:
        self.image = replace(
            self.image, isr=isr, partition_epoch=self.leader.image.partition_epoch + 1
        )
        self.leader.apply(self.image, self.now)


def test_nothing_is_committed_before_all_in_sync_have_been_heard_of() -> None:
    bench = Bench()
    assert bench.committed() is None
    bench.fetch(2, 100)
    assert bench.committed() is None
    bench.fetch(3, 90)
    assert bench.committed() == 90


def test_committed_is_what_the_slowest_in_sync_has() -> None:
    bench = Bench()
    bench.fetch(2, 100)
    bench.fetch(3, 100)
    bench.end = 150
    assert bench.committed() == 100
    bench.fetch(2, 150)
    assert bench.committed() == 100
    bench.fetch(3, 120)
    assert bench.committed() == 120


def test_the_leader_counts_what_it_has_written_itself() -> None:
    bench = Bench()
    bench.fetch(2, 100)
    bench.fetch(3, 100)
    assert bench.leader.committed_offset(70, lambda: bench.now, 1) == 70


def test_a_replica_that_is_not_in_sync_is_not_waited_for() -> None:
    bench = Bench(isr=(1, 2))
    bench.fetch(2, 100)
    bench.fetch(3, 5)
    assert bench.committed() == 100


def test_a_replica_that_is_about_to_be_in_sync_is_waited_for() -> None:
    """Otherwise the committed offset could stay ahead of it, and it could never join."""
    bench = Bench(isr=(1, 2))
    bench.fetch(2, 100)
    bench.fetch(3, 100)
    bench.end = 110
    bench.fetch(2, 110)
    assert bench.committed() == 100
    bench.dead.add(3)
    assert bench.committed() == 110
    bench.dead.clear()
    bench.now += LAG_MS + 1
    assert bench.committed() == 110


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    bench = Bench(isr=(1,))
    assert bench.committed(min_insync_replicas=1) == 100
    assert bench.committed(min_insync_replicas=2) is None


def test_a_partition_never_needs_more_replicas_than_it_has() -> None:
    image = PartitionImage((1,), (1,), 1)
    leader = PartitionLeader(
        1, image, log_end_offset=9, now_ms=0, lag_ms=LAG_MS, is_eligible=lambda *_: True
    )
    assert leader.required_in_sync(2) == 1
    assert leader.committed_offset(9, lambda: 0, 2) == 9


def test_who_is_no_replica_is_not_listened_to() -> None:
    bench = Bench()
    assert not bench.fetch(9, 100)
    assert not bench.fetch(1, 100)


# ---------------------------------------------------------------------------------------- growing


def test_a_follower_joins_when_it_has_what_is_committed() -> None:
    bench = Bench(isr=(1, 2))
    bench.fetch(2, 100)
    bench.fetch(3, 99)
    assert bench.leader.propose_growth(3, 100) is None
    bench.fetch(3, 100)
    assert bench.leader.propose_growth(3, 100) == IsrProposal((1, 2, 3), 4, 7)


def test_a_follower_joins_only_with_all_of_the_epochs_before() -> None:
    """A new leader does not know how much of its log is committed: it may be all of it."""
    bench = Bench(isr=(1, 2))
    bench.fetch(3, 60)
    assert bench.leader.propose_growth(3, high_watermark=40) is None


def test_who_is_in_sync_or_not_alive_is_not_proposed() -> None:
    bench = Bench(isr=(1, 2))
    bench.fetch(2, 100)
    bench.fetch(3, 100)
    assert bench.leader.propose_growth(2, 0) is None
    bench.dead.add(3)
    assert bench.leader.propose_growth(3, 0) is None


def test_a_follower_that_has_everything_is_proposed_as_soon_as_it_can_be() -> None:
    """It may not fetch again soon: in an idle partition there is nothing new to report."""
    bench = Bench(isr=(1,))
    bench.dead.add(3)
    bench.fetch(2, 90)
    bench.fetch(3, 100)
    assert bench.leader.propose_any_growth(100) is None
    bench.dead.clear()
    assert bench.leader.propose_any_growth(100) == IsrProposal((1, 3), 4, 7)


def test_a_follower_that_is_proposed_counts_already() -> None:
    bench = Bench(isr=(1, 2))
    bench.fetch(2, 100)
    bench.fetch(3, 100)
    assert bench.leader.propose_growth(3, 100)
    bench.end = 120
    bench.fetch(2, 120)
    bench.now += 10 * LAG_MS
    assert bench.committed() == 100
    assert bench.leader.maximal_isr == {1, 2, 3}


# --------------------------------------------------------------------------------------- shrinking


def test_a_follower_that_does_not_keep_up_is_left_out() -> None:
    bench = Bench()
    bench.fetch(2, 100)
    bench.fetch(3, 100)
    bench.end = 110
    bench.fetch(2, 110)
    bench.now += LAG_MS
    bench.fetch(2, 110)
    assert bench.leader.propose_shrink(bench.end, bench.now) is None
    bench.now += 1
    assert bench.leader.propose_shrink(bench.end, bench.now) == IsrProposal((1, 2), 4, 7)
    # It counts as in sync until the controller has decided.
    assert bench.committed() == 100
    bench.decide(1, 2)
    assert bench.committed() == 110


def test_a_follower_that_has_everything_is_in_sync_however_long_it_is_silent() -> None:
    bench = Bench()
    bench.fetch(2, 100)
    bench.fetch(3, 100)
    bench.now += 100 * LAG_MS
    assert bench.leader.propose_shrink(bench.end, bench.now) is None


def test_a_follower_that_is_always_a_little_behind_keeps_up() -> None:
    """At every fetch it has everything that was there at its previous fetch."""
    bench = Bench()
    for _ in range(20):
        bench.fetch(2, bench.end)
        bench.fetch(3, bench.end - 10)
        bench.end += 10
        bench.now += LAG_MS // 2
        assert bench.leader.propose_shrink(bench.end, bench.now) is None


def test_a_follower_that_never_fetches_is_left_out_after_a_while() -> None:
    bench = Bench()
    bench.fetch(2, 100)
    bench.now += LAG_MS + 1
    assert bench.leader.propose_shrink(bench.end, bench.now) == IsrProposal((1, 2), 4, 7)


# --------------------------------------------------------------------------------------- deciding


def test_one_proposal_at_a_time() -> None:
    bench = Bench(isr=(1, 2))
    bench.fetch(3, 100)
    first = bench.leader.propose_growth(3, 100)
    assert first is not None
    assert bench.leader.propose_growth(3, 100) is None
    bench.now += 10 * LAG_MS
    assert bench.leader.propose_shrink(bench.end, bench.now) is None
    bench.leader.refused(first)
    assert bench.leader.proposal is None
    assert bench.leader.propose_growth(3, 100) == first


def test_an_older_decision_changes_nothing() -> None:
    bench = Bench(isr=(1, 2))
    bench.fetch(3, 100)
    proposal = bench.leader.propose_growth(3, 100)
    bench.leader.apply(bench.image, bench.now)
    assert bench.leader.proposal == proposal
    bench.decide(1, 2, 3)
    assert bench.leader.proposal is None
    bench.leader.apply(replace(bench.image, isr=(1,), partition_epoch=3), bench.now)
    assert bench.leader.image.isr == (1, 2, 3)


def test_a_replica_that_is_added_is_followed_from_then_on() -> None:
    bench = Bench()
    bench.image = replace(bench.image, replicas=(1, 2, 3, 4))
    bench.decide(1, 2, 3)
    assert bench.fetch(4, 0)
    assert bench.leader.propose_growth(4, 50) is None
    bench.fetch(4, 100)
    assert bench.leader.propose_growth(4, 50) is not None


@pytest.mark.parametrize(("offset", "brokers"), [(0, [1, 2, 3]), (60, [1, 3]), (100, [1])])
def test_consumers_read_from_replicas_that_have_the_offset(offset: int, brokers: list[int]) -> None:
    bench = Bench()
    bench.fetch(2, 50)
    bench.fetch(3, 80)
    assert list(bench.leader.readable_replicas(offset)) == brokers
