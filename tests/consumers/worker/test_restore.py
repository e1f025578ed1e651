"""The thread that restores states, when it fails."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from consumers.worker import restore
from consumers.worker.restore import Restorer
from tests.consumers.running import Broker, await_condition
from tests.dying_threads import assert_process_ends
from waylog.kafka.clients import client_config
from waylog.kafka.topics import ADDRESS
from waylog.process.process_status import ProcessStatus


def test_a_state_that_cannot_be_restored_is_told_to_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_arguments: object) -> None:
        raise ValueError("no state")

    ends: list[int] = []
    monkeypatch.setattr("os._exit", ends.append)
    monkeypatch.setattr(restore, "PartitionReader", fail)
    restorer = Restorer({"client.id": "test"}, "address", ProcessStatus())
    restorer.restore(0, lambda _records: None, lambda: None, threading.Event())
    await_condition(lambda: str(restorer.failed) == "no state", 60, "the failure")
    await_condition(
        lambda: "restore" not in {each.name for each in threading.enumerate()}, 60, "its end"
    )
    restorer.close()
    assert not ends


def test_a_restoring_thread_that_hangs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def hang(*_arguments: object) -> None:
        go_on.wait(60)
        raise ValueError("no state")

    monkeypatch.setattr(restore, "PartitionReader", hang)
    monkeypatch.setattr(restore, "_STEP_MAX_S", 0.01)
    restorer = Restorer({"client.id": "test"}, "address", ProcessStatus())
    assert not restorer.hangs
    restorer.restore(0, lambda _records: None, lambda: None, threading.Event())
    await_condition(lambda: restorer.hangs, 60, "the notice")
    go_on.set()
    await_condition(lambda: restorer.failed is not None, 60, "the end")
    restorer.close()


def test_a_partition_that_is_missing_is_told_and_holds_up_no_other(broker: Broker) -> None:
    status, restored = ProcessStatus(), list[int]()
    restorer = Restorer(client_config(broker.address, "test"), ADDRESS, status)
    going_on = threading.Event()
    try:
        for each in (5, 0):
            restorer.restore(each, lambda _: None, partial(restored.append, each), going_on)
        await_condition(lambda: restored == [0], 60, "the other partition")
        assert status.told is not None
        assert f"topic {ADDRESS} has no partition 5" in status.told
        admin = AdminClient(client_config(broker.address, "test"))
        for future in admin.create_partitions([NewPartitions(ADDRESS, 6)]).values():
            future.result(60)
        await_condition(lambda: restored == [0, 5], 60, "the new partition")
        assert status.told is None
    finally:
        restorer.close()


def test_a_restoring_thread_takes_its_process_with_it() -> None:
    assert_process_ends(
        """
        from consumers.worker import restore
        from waylog.process.process_status import ProcessStatus
        restore.PartitionReader = die
        restorer = restore.Restorer({"client.id": "test"}, "address", ProcessStatus())
        restorer.restore(0, print, print, threading.Event())
        """,
        "restore",
    )
