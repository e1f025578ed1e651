"""What is learnt of a cluster by threads, whatever they meet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from waylog.administration import cluster_state
from waylog.administration.cluster_state import ClusterState, effective
from waylog.administration.log_access import LogAccess
from waylog.cli import CommandError
from waylog.kafka.protocol.cluster_requests import PartitionState


def test_what_a_thread_meets_while_the_interpreter_ends_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = "cannot schedule new futures after interpreter shutdown"
    unhandled: list[Any] = []
    threads: list[threading.Thread] = []

    @contextmanager
    def admin(*_: Any, **__: Any) -> Iterator[None]:
        threads.append(threading.current_thread())
        raise RuntimeError(ended)
        yield

    monkeypatch.setattr(threading, "excepthook", unhandled.append)
    monkeypatch.setattr(cluster_state, "cluster_admin", admin)
    monkeypatch.setattr(cluster_state, "_LATE_S", 0.5)
    access = LogAccess("127.0.0.1:1,127.0.0.1:2")
    with pytest.raises(CommandError, match=r"no Kafka broker answers at 127\.0\.0\.1:1"):
        ClusterState(access).learn(0.5)
    assert len(threads) == 2
    for thread in threads:
        thread.join(60)
    assert not unhandled


@pytest.mark.parametrize(
    ("silent", "expected"),
    [
        (set(), PartitionState(1, [1, 2, 3], [1, 2])),
        ({1}, PartitionState(-1, [1, 2, 3], [2])),
        ({2}, PartitionState(1, [1, 2, 3], [1])),
        ({3}, PartitionState(1, [1, 2, 3], [1, 2])),
        ({1, 2, 3}, PartitionState(-1, [1, 2, 3], [])),
    ],
)
def test_who_does_not_answer_is_no_leader_and_not_in_sync(
    silent: set[int], expected: PartitionState
) -> None:
    assert effective(PartitionState(1, [1, 2, 3], [1, 2]), silent) == expected
