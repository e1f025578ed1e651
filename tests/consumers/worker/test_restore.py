"""The thread that restores states, when it fails."""

from __future__ import annotations

import threading

import pytest

from consumers.worker import restore
from consumers.worker.restore import Restorer
from tests.consumers.running import await_condition
from tests.dying_threads import assert_process_ends


def test_a_state_that_cannot_be_restored_is_told_to_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_arguments: object) -> None:
        raise ValueError("no state")

    ends: list[int] = []
    monkeypatch.setattr("os._exit", ends.append)
    monkeypatch.setattr(restore, "PartitionReader", fail)
    restorer = Restorer({"client.id": "test"}, "address")
    restorer.restore(0, lambda _records: None, lambda: None, threading.Event())
    await_condition(lambda: str(restorer.failed) == "no state", 30, "the failure")
    await_condition(
        lambda: "restore" not in {each.name for each in threading.enumerate()}, 30, "its end"
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
    restorer = Restorer({"client.id": "test"}, "address")
    assert not restorer.hangs
    restorer.restore(0, lambda _records: None, lambda: None, threading.Event())
    await_condition(lambda: restorer.hangs, 30, "the notice")
    go_on.set()
    await_condition(lambda: restorer.failed is not None, 30, "the end")
    restorer.close()


def test_a_restoring_thread_takes_its_process_with_it() -> None:
    assert_process_ends(
        """
        from consumers.worker import restore
        restore.PartitionReader = die
        restorer = restore.Restorer({"client.id": "test"}, "address")
        restorer.restore(0, print, print, threading.Event())
        """,
        "restore",
    )
