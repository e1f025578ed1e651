from __future__ import annotations

from typing import Any

from broker_core import errors
from broker_core.cluster.records import NO_LEADER
from broker_core.cluster.settings import ControllerSettings
from tests.broker_core.cluster.conftest import Bench


def test_a_broker_is_fenced_until_it_knows_of_its_own_registration(bench: Bench) -> None:
    epoch = bench.register(1)
    assert bench.beat(1, current_metadata_offset=epoch - 1)["is_fenced"]
    assert not bench.beat(1, current_metadata_offset=epoch)["is_fenced"]


def test_a_silent_broker_is_fenced_when_its_session_ends(bench: Bench) -> None:
    bench.run(1, 2)
    bench.create("t", [1, 2])
    bench.now += 5
    bench.beat(2)
    assert bench.controller.next_deadline() == 109.0
    bench.now = 109.0
    bench.controller.tick(bench.now)
    assert bench.image.brokers[1].fenced
    assert not bench.image.brokers[2].fenced
    partition = bench.partition("t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 1)


def test_silence_of_the_broker_in_the_controllers_own_process_means_nothing() -> None:
    bench = Bench(ControllerSettings(session_timeout=9.0, local_broker=1))
    bench.run(1, 2)
    bench.create("t", [1, 2])
    # The process stood still, and the controller runs before any heartbeat.
    bench.now += 30
    bench.controller.tick(bench.now)
    assert not bench.image.brokers[1].fenced
    assert bench.image.brokers[2].fenced
    assert bench.controller.next_deadline() > bench.now + 200
    # A former process of this node, of which only the metadata knows, is another thing.
    bench.controller.brokers.disconnected(1)
    bench.controller.tick(bench.now)
    assert bench.image.brokers[1].fenced


def test_a_second_process_with_the_same_id_is_refused_while_the_first_lives(bench: Bench) -> None:
    bench.run(1)
    asked: Any = {
        "broker_id": 1,
        "cluster_id": "",
        "incarnation_id": b"x" * 16,
        "listeners": [],
        "rack": None,
        "previous_broker_epoch": -1,
    }
    answer = bench.controller.brokers.register(asked, bench.now)
    assert answer["error_code"] == errors.DuplicateBrokerRegistration.code
    bench.controller.brokers.disconnected(1)
    answer = bench.controller.brokers.register(asked, bench.now)
    assert answer["error_code"] == errors.NONE
    assert bench.image.brokers[1].fenced


def test_a_registration_whose_answer_was_lost_is_not_made_twice(bench: Bench) -> None:
    first = bench.register(1)
    assert bench.register(1) == first


def test_the_former_process_is_told_that_it_is_gone(bench: Bench) -> None:
    bench.run(1)
    former = bench.image.brokers[1].epoch
    bench.kill(1)
    bench.register(1, process=2)
    assert bench.beat(1, broker_epoch=former)["error_code"] == errors.StaleBrokerEpoch.code
    assert bench.beat(7 - 6)["error_code"] == errors.NONE


def test_another_cluster_is_not_joined(bench: Bench) -> None:
    asked: Any = {
        "broker_id": 1,
        "cluster_id": "other",
        "incarnation_id": b"x" * 16,
        "listeners": [],
    }
    answer = bench.controller.brokers.register(asked, bench.now)
    assert answer["error_code"] == errors.InconsistentClusterId.code


def test_leaders_move_before_a_broker_may_stop(bench: Bench) -> None:
    bench.run(1, 2, 3)
    bench.create("t", [1, 2, 3], [2, 1, 3])
    assert bench.beat(1, want_shut_down=True)["should_shut_down"]
    assert bench.partition("t", 0).leader == 2
    assert bench.partition("t", 0).isr == (2, 3)
    assert bench.partition("t", 1).leader == 2
    assert bench.partition("t", 1).leader_epoch == 0


def test_the_last_in_sync_stays_so_and_leads_when_it_is_back(bench: Bench) -> None:
    bench.run(1, 2)
    bench.create("t", [1, 2])
    bench.kill(2)
    bench.kill(1)
    assert (bench.partition("t").leader, bench.partition("t").isr) == (NO_LEADER, (1,))
    bench.run(2)
    assert bench.partition("t").leader == NO_LEADER
    bench.register(1, process=2)
    bench.beat(1)
    assert bench.partition("t").leader == 1


def test_blocks_of_producer_ids_do_not_overlap(bench: Bench) -> None:
    bench.run(1, 2)
    blocks = [
        bench.controller.allocate_producer_ids(
            {"broker_id": each, "broker_epoch": bench.image.brokers[each].epoch}
        )
        for each in (1, 2, 1)
    ]
    starts = [each["producer_id_start"] for each in blocks]
    assert starts == [0, 1000, 2000]
    stale = bench.controller.allocate_producer_ids({"broker_id": 1, "broker_epoch": 77})
    assert stale["error_code"] == errors.StaleBrokerEpoch.code
