"""Learns a cluster's state in a few seconds, even when a part of the cluster is dead.

All bootstrap servers are asked at once, each in a thread, so that one that hangs does not hold up
the others. Then every broker that the cluster names is asked whether it answers, since the metadata
may list a broker as alive for some seconds after its death.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from copy import copy
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from waylog.cli import CommandError
from waylog.console.cluster_admin import cluster_admin, refusal
from waylog.console.common import connect

_CONNECT_MS: Final = 1500
_REQUEST_MS: Final = 2000
_PAUSE_S: Final = 0.2
#: Seconds that the first answer may take as long as no reason for its absence is known.
_LATE_S: Final = 10.0

Place = tuple[str, int]


class ClusterState:
    """The state learnt so far, filled by threads; None is not known."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._changed = threading.Condition()
        self.cluster: dict[str, Any] | None = None
        self.partitions: dict[Place, dict[str, Any]] | None = None
        #: The metadata quorum; empty if the cluster has none to show.
        self.quorum: dict[str, Any] | None = None
        #: By broker id: True if it has answered.
        self.answers: dict[int, bool] = {}
        self._error: Exception | None = None
        self._refusal: CommandError | None = None
        self._deadline = 0.0

    def learn(self, timeout_s: float) -> None:
        """Ask, and return when all is known or after `timeout_s`; later if nobody answers by then.

        Raises CommandError if nothing could be learnt.
        """
        began = time.monotonic()
        self._deadline = began + max(timeout_s, _LATE_S)
        for address in self._arguments.bootstrap_servers.split(","):
            self._beside(self._ask, address.strip())
        # This check gives the best reason why no broker answers.
        self._beside(self._reach)
        with self._changed:
            self._wait(lambda: self.cluster is not None, began + timeout_s)
            if self.cluster is None:
                # On a busy machine a late answer is better than none.
                self._wait(lambda: self.cluster is not None or self._refusal is not None)
            if self.cluster is None:
                raise self._refusal or CommandError(
                    f"no Kafka broker answers at {self._arguments.bootstrap_servers}"
                    + (f": {refusal(self._error)}" if self._error is not None else "")
                )
            brokers = list(self.cluster["brokers"])
            self._deadline = max(began + timeout_s, time.monotonic() + _REQUEST_MS / 1000)
        for broker in brokers:
            self._beside(self._probe, broker)
        with self._changed:
            self._wait(lambda: self._is_complete(len(brokers)))
            for broker in brokers:
                self.answers.setdefault(broker["broker_id"], False)

    @property
    def unknown(self) -> list[str]:
        """Names of the parts that could not be learnt."""
        parts = {"partitions": self.partitions, "controllers": self.quorum}
        return [name for name, value in parts.items() if value is None]

    def _is_complete(self, brokers: int) -> bool:
        return not self.unknown and len(self.answers) == brokers

    def _wait(self, condition: Callable[[], bool], until: float | None = None) -> None:
        deadline = self._deadline if until is None else until
        self._changed.wait_for(condition, max(0.0, deadline - time.monotonic()))

    def _beside(self, work: Callable[..., None], *arguments: Any) -> None:
        # The command ends without waiting for threads that hang.
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _learnt(self, **parts: Any) -> None:
        with self._changed:
            for name, value in parts.items():
                if getattr(self, name) is None:
                    setattr(self, name, value)
            self._changed.notify_all()

    def _at(self, address: str) -> argparse.Namespace:
        arguments = copy(self._arguments)
        arguments.bootstrap_servers = address
        return arguments

    def _reach(self) -> None:
        try:
            connect(self._arguments)
        except CommandError as error:
            with self._changed:
                self._refusal = error
                self._changed.notify_all()
        except Exception as error:
            self._error = error

    def _ask(self, address: str) -> None:
        while time.monotonic() < self._deadline and (self.cluster is None or self.unknown):
            try:
                with cluster_admin(
                    self._at(address),
                    bootstrap_timeout_ms=_CONNECT_MS,
                    request_timeout_ms=_REQUEST_MS,
                ) as admin:
                    self._learnt(cluster=admin.describe_cluster())
                    self._learnt(quorum=_quorum(admin))
                    self._learnt(partitions=partitions_of(admin))
            except (KafkaError, OSError, ValueError) as error:
                self._error = error
            time.sleep(_PAUSE_S)

    def _probe(self, broker: dict[str, Any]) -> None:
        answers = False
        while not answers and time.monotonic() < self._deadline:
            try:
                with cluster_admin(
                    self._at(f"{broker['host']}:{broker['port']}"),
                    bootstrap_timeout_ms=_CONNECT_MS,
                    request_timeout_ms=_REQUEST_MS,
                ):
                    answers = True
            except (KafkaError, OSError, ValueError):
                break
        with self._changed:
            self.answers[broker["broker_id"]] = answers
            self._changed.notify_all()


def partitions_of(admin: KafkaAdminClient) -> dict[Place, dict[str, Any]]:
    """Return the metadata of all partitions by topic and number."""
    return {
        (topic["name"], each["partition_index"]): each
        for topic in admin.describe_topics()
        for each in sorted(topic["partitions"], key=lambda one: int(one["partition_index"]))
    }


def _quorum(admin: KafkaAdminClient) -> dict[str, Any]:
    try:
        found: dict[str, Any] = admin.describe_metadata_quorum()["topics"][0]["partitions"][0]
    except LookupError:
        return {}
    except KafkaError as error:
        if getattr(error, "retriable", False):
            raise
        # A cluster from before KRaft, or a client without the right to see the quorum.
        return {}
    return found
