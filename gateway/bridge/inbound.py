"""From the cluster to the log: a message is acknowledged after it has been appended."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from gateway.mqtt.interfaces import Completion, Submitter
from gateway.mqtt.publishing.completions import AllOf, has_failed
from gateway.mqtt.publishing.ingest import Ingest
from gateway.mqtt.rights.acl import AccessRules
from gateway.users.admission import Admission, QuotaExceeded
from gateway.users.rights import USUAL_RIGHTS, Rights
from waylog.network.outbound.mqtt_connection import Arrival

logger = logging.getLogger(__name__)

#: Seconds between a failed append and the reconnection that has messages delivered again.
_RETRY_S: Final = 1.0


class Acknowledger(Protocol):
    """The part of Cluster that `Inbound` uses."""

    def acknowledge(self, arrival: Arrival) -> None: ...
    def reconnect(self) -> None: ...


@dataclass(frozen=True)
class ClusterIdentity:
    """The identity of a publisher that the cluster has authenticated and authorized."""

    user: str = "bridge"
    device: str | None = None
    admin: bool = True
    rights: Rights = USUAL_RIGHTS


class Inbound:
    """Appends the messages of the cluster; `clock_ms` returns Unix time.

    With `rights_of` and `admission`, the rights and quotas in our own database also apply to the
    messages that the cluster delivers under a user's name.
    """

    def __init__(
        self,
        submitter: Submitter,
        loop: asyncio.AbstractEventLoop,
        clock_ms: Callable[[], int],
        on_device: Callable[[str], None],
        rights_of: Callable[[str], Rights] | None = None,
        admission: Admission | None = None,
    ) -> None:
        self.counters: Counter[str] = Counter()
        self.cluster: Acknowledger | None = None
        self._loop = loop
        self._ingest = Ingest(
            submitter, AccessRules(), clock_ms, self.counters, admission=admission
        )
        self._rights_of = rights_of
        self._on_device = on_device
        self._reconnecting: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Cancel a planned reconnection."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()

    def take(self, arrivals: Sequence[Arrival]) -> None:
        """Append messages that the cluster has delivered."""
        for arrival in arrivals:
            self.counters["messages"] += 1
            identity = self._identity(arrival.topic)
            route = self._ingest.route(identity, arrival.topic)
            if route.parse is None:
                # It is not for the log; without an acknowledgement it would block others.
                self.counters["ignored"] += 1
                self._acknowledge(arrival)
                continue
            self._on_device(f"{route.user}/{route.device}")
            try:
                _, completions = self._ingest.submit(identity, route, arrival.payload)
            except QuotaExceeded as error:
                # Without an acknowledgement it would block messages of other users.
                self.counters["beyond_quota"] += 1
                completions = [
                    self._ingest.keep_refused(identity, route, arrival.payload, str(error))
                ]
            if not completions:
                self._acknowledge(arrival)
                continue
            done = completions[0] if len(completions) == 1 else AllOf(completions)
            done.add_done_callback(partial(self._appended, arrival))

    def _identity(self, topic: str) -> ClusterIdentity:
        levels = topic.split("/", 2)
        if self._rights_of is None or len(levels) < 3:
            return ClusterIdentity()
        return ClusterIdentity(levels[1], rights=self._rights_of(levels[1]))

    def _appended(self, arrival: Arrival, completion: Completion) -> None:
        if not has_failed(completion):
            self.counters["appended"] += 1
            self._acknowledge(arrival)
            return
        self.counters["failed"] += 1
        if self._reconnecting is None:
            # The cluster delivers it again only on another connection.
            logger.warning("the log does not accept messages now; they will be asked for again")
            self._reconnecting = self._loop.call_later(_RETRY_S, self._reconnect)

    def _reconnect(self) -> None:
        self._reconnecting = None
        if self.cluster is not None:
            self.cluster.reconnect()

    def _acknowledge(self, arrival: Arrival) -> None:
        if self.cluster is not None:
            self.cluster.acknowledge(arrival)
