"""Learns a cluster's state in a few seconds, even when a part of the cluster is dead.

All bootstrap servers are asked at once, each in a thread, so that one that hangs does not hold up
the others. Then every broker that the cluster names is asked whether it answers, since the metadata
may list a broker as alive for some seconds after its death.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from waylog.administration.cluster_admin import (
    FAILURES,
    ClusterAdmin,
    ClusterError,
    cluster_admin,
    refusal,
)
from waylog.administration.log_access import LogAccess, LogAway
from waylog.cli import CommandError
from waylog.kafka.connection.broker_connection import addresses
from waylog.kafka.protocol.cluster_requests import Members, PartitionState, Place, Quorum
from waylog.kafka.protocol.requests import Broker
from waylog.process.threads import start_thread

_CONNECT_S: Final = 1.5
_REQUEST_S: Final = 2.0
_PAUSE_S: Final = 0.2
#: Seconds that the first answer may take as long as no reason for its absence is known.
_LATE_S: Final = 10.0


class ClusterState:
    """The state learnt so far, filled by threads; None is not known."""

    def __init__(self, access: LogAccess) -> None:
        self._access = access
        self._changed = threading.Condition()
        self.cluster: Members | None = None
        self.partitions: dict[Place, PartitionState] | None = None
        #: The metadata quorum; None too if the cluster has none to show.
        self.quorum: Quorum | None = None
        self._knows_quorum = False
        #: By broker id: True if it has answered.
        self.answers: dict[int, bool] = {}
        self._error: Exception | None = None
        self._refusal: CommandError | None = None
        self._deadline = 0.0
        self._is_over = False

    def learn(self, timeout_s: float, *, late_s: float = _LATE_S) -> None:
        """Ask, and return when all is known or after `timeout_s`; later if nobody answers by then.

        `late_s`: how long the first answer may take as long as no reason for its absence is known.
        Raises CommandError if nothing could be learnt.
        """
        try:
            self._learn(timeout_s, late_s)
        finally:
            self._is_over = True

    def _learn(self, timeout_s: float, late_s: float) -> None:
        began = time.monotonic()
        self._deadline = began + max(timeout_s, late_s)
        for broker in addresses(self._access.bootstrap_servers):
            self._beside(self._ask, broker)
        # This check gives the best reason why no broker answers.
        self._beside(self._reach)
        with self._changed:
            self._wait(lambda: self.cluster is not None, began + timeout_s)
            if self.cluster is None:
                # On a busy machine a late answer is better than none.
                self._wait(lambda: self.cluster is not None or self._refusal is not None)
            if self.cluster is None:
                raise self._refusal or LogAway(
                    f"no Kafka broker answers at {self._access.bootstrap_servers}"
                    + (f": {refusal(self._error)}" if self._error is not None else "")
                )
            brokers = {node: each.address for node, each in self.cluster.brokers.items()}
            self._deadline = max(began + timeout_s, time.monotonic() + _REQUEST_S)
        for node, address in brokers.items():
            self._beside(self._probe, node, address)
        with self._changed:
            self._wait(lambda: self._is_complete(len(brokers)))
            for node in brokers:
                self.answers.setdefault(node, False)

    @property
    def silent(self) -> set[int]:
        """The brokers that the metadata names and that have not answered."""
        return {node for node, answers in self.answers.items() if not answers}

    @property
    def unknown(self) -> list[str]:
        """Names of the parts that could not be learnt."""
        parts = {"partitions": self.partitions is not None, "controllers": self._knows_quorum}
        return [name for name, is_known in parts.items() if not is_known]

    def _is_complete(self, brokers: int) -> bool:
        return not self.unknown and len(self.answers) == brokers

    def _wait(self, condition: Callable[[], bool], until: float | None = None) -> None:
        deadline = self._deadline if until is None else until
        self._changed.wait_for(condition, max(0.0, deadline - time.monotonic()))

    def _beside(self, work: Callable[..., None], *access: Any) -> None:
        # The command ends without waiting for threads that hang.
        start_thread(partial(self._attempt, work, *access), "cluster-state", may_end=lambda: True)

    def _attempt(self, work: Callable[..., None], *access: Any) -> None:
        """Do a thread's work. Whatever it meets is an outcome, told as one line if need be.

        A thread that outlives the command meets errors of the interpreter that ends: asyncio can
        start no thread any more to look up a name (RuntimeError).
        """
        try:
            work(*access)
        except Exception as error:
            self._error = error

    def _learnt(self, part: str, value: object) -> None:
        with self._changed:
            if getattr(self, part) is None:
                setattr(self, part, value)
            self._knows_quorum = self._knows_quorum or part == "quorum"
            self._changed.notify_all()

    def _reach(self) -> None:
        try:
            self._access.connect()
        except CommandError as error:
            with self._changed:
                self._refusal = error
                self._changed.notify_all()

    def _ask(self, broker: Broker) -> None:
        while self._is_needed():
            try:
                with self._admin(broker) as admin:
                    self._learnt("cluster", admin.members())
                    self._learnt("partitions", admin.partitions())
                    # Last, since no answer comes where no majority of the controllers is left.
                    self._learnt("quorum", _quorum(admin))
            except FAILURES as error:
                self._error = error
            time.sleep(_PAUSE_S)

    def _is_needed(self) -> bool:
        if self._is_over or time.monotonic() >= self._deadline:
            return False
        return self.cluster is None or bool(self.unknown)

    def _probe(self, node: int, broker: Broker) -> None:
        answers = False
        try:
            with self._admin(broker) as admin:
                admin.members()
                answers = True
        except FAILURES:
            pass
        finally:
            with self._changed:
                self.answers[node] = answers
                self._changed.notify_all()

    def _admin(self, broker: Broker) -> AbstractContextManager[ClusterAdmin]:
        return cluster_admin(
            self._access, brokers=[broker], connect_s=_CONNECT_S, request_s=_REQUEST_S
        )


def effective(state: PartitionState, silent: Collection[int]) -> PartitionState:
    """Return a partition without the brokers that do not answer as leader or in sync.

    The metadata may name them for some seconds, and for ever where no majority of the controllers
    is left to take them out.
    """
    return PartitionState(
        -1 if state.leader in silent else state.leader,
        state.replicas,
        [each for each in state.in_sync if each not in silent],
    )


def _quorum(admin: ClusterAdmin) -> Quorum | None:
    try:
        return admin.quorum()
    except ClusterError as error:
        if error.retriable:
            raise
        # A client without the right to see the quorum.
        return None
