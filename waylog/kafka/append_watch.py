"""Finds out whether appends would be acknowledged, while there are none that show it.

Readers hear from any leader that is left. A record is only acknowledged when as many replicas have
it as `min.insync.replicas` asks for; so the leaders and replicas in sync of the metadata are
compared with that setting, and with the brokers that run: where most controllers are gone, nobody
takes a dead broker out of the metadata.

A leader must answer here, as a producer needs it. A follower need not: a firewall may keep it from
this client and not from its leader. Where followers that do not answer would be missing, the
controllers are asked whether they hear them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from waylog.kafka.connection.broker_connection import BrokerConnection, addresses
from waylog.kafka.connection.security import ConnectionSecurity, configured_security
from waylog.kafka.protocol import cluster_requests, config_requests, requests
from waylog.kafka.protocol.cluster_requests import PartitionState, Place
from waylog.kafka.protocol.requests import Broker, MalformedAnswer
from waylog.process.background import spawn

logger = logging.getLogger(__name__)

_LOOK_S: Final = 2.0
#: After an acknowledgement nobody has to be asked for this long.
_ACKNOWLEDGED_S: Final = 5.0
_ANSWER_S: Final = 2.0
#: Settings of topics are rarely changed.
_SETTINGS_S: Final = 60.0
#: A broker asks the controllers for news at least twice a second.
_HEARD_MS: Final = 5_000
_NOBODY: Final = -1  # leads
_MIN_IN_SYNC: Final = "min.insync.replicas"


def shortfall(
    partitions: Mapping[Place, PartitionState],
    answering: Collection[int],
    min_in_sync: Mapping[str, int],
    heard: Collection[int] = (),
) -> str | None:
    """Return why some of these partitions cannot store now; None if all can.

    `answering` are the brokers that answer here, `heard` those that the controllers hear,
    `min_in_sync` the settings of topics that are known.
    """
    running = {*answering, *heard}
    short: list[tuple[Place, str]] = []
    missing: set[int] = set()
    for place, state in partitions.items():
        in_sync = [each for each in state.in_sync if each in running]
        # As leaders do: more than there are replicas are never asked for.
        wanted = min(min_in_sync.get(place[0], 1), len(state.replicas))
        if state.leader not in answering:
            short.append((place, "no leader that answers"))
            missing.update({state.leader} - {_NOBODY})
        elif len(in_sync) < wanted:
            have = f"{len(in_sync)} of {len(state.replicas)} replicas in sync"
            short.append((place, f"{have}, and {_MIN_IN_SYNC} is {wanted}"))
        else:
            continue
        missing.update(each for each in state.replicas if each not in in_sync)
    if not short:
        return None
    (topic, index), why = short[0]
    more = f" (and {len(short) - 1} more partitions)" if len(short) > 1 else ""
    nodes = ", ".join(map(str, sorted(missing)))
    return f"{topic}-{index}{more} has {why}: are the brokers {nodes} running and in reach?"


class AppendWatch:
    """Looks again and again, while nothing is acknowledged, whether some topics can be written."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        loop: asyncio.AbstractEventLoop,
        topics: Sequence[str],
        acknowledged_at: Callable[[], float],
        *,
        security: ConnectionSecurity | None = None,
    ) -> None:
        """`acknowledged_at` returns the loop's time of the last acknowledgement."""
        self._loop = loop
        self._client_id = client_id
        self._bootstrap = addresses(bootstrap_servers)
        self._topics = topics
        self._acknowledged_at = acknowledged_at
        self._security = configured_security() if security is None else security
        self._brokers: dict[int, Broker] = {}
        self._connections: dict[Broker, BrokerConnection] = {}
        self._min_in_sync: dict[str, int] = {}
        self._settings_at: float | None = None
        self._suspicion: str | None = None
        self._trouble: str | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str | None:
        """Why the topics cannot be written now; None if they can, or nobody knows."""
        return None if self._is_acknowledged() else self._trouble

    def start(self) -> None:
        """Start to look."""
        self._task = spawn(
            self._run(), "whether the log can be written", loop=self._loop, endless=True
        )

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._forget(self._connections)

    def _is_acknowledged(self) -> bool:
        return self._loop.time() - self._acknowledged_at() < _ACKNOWLEDGED_S

    async def _run(self) -> None:
        while True:
            if self._is_acknowledged():
                self._suspicion = self._trouble = None
            else:
                found = await self._found()
                # A leader may be about to be replaced: only what is so twice is trouble.
                self._trouble = found if self._suspicion is not None else None
                self._suspicion = found
            await asyncio.sleep(_LOOK_S)

    async def _found(self) -> str | None:
        try:
            return await self.look()
        except MalformedAnswer as error:
            logger.error("whether the log can be written is not known: %s", error)
            return None

    async def look(self) -> str | None:
        """Look once; return why the topics cannot be written, None if they can or nobody knows.

        Raises MalformedAnswer.
        """
        answers = await self._ask_all(set(self._brokers.values()) or set(self._bootstrap))
        if not answers:
            answers = await self._ask_all(set(self._bootstrap))
        if not answers:
            return None  # the readers of the log say so
        # A cluster tells the addresses that its clients use, which may be others.
        self._brokers = requests.read_metadata(next(iter(answers.values()))).brokers
        answers |= await self._ask_all(set(self._brokers.values()) - answers.keys())
        self._forget(self._connections.keys() - self._brokers.values())
        nodes = {broker: node for node, broker in self._brokers.items()}
        told = {
            nodes[broker]: cluster_requests.read_all_partitions(body)
            for broker, body in answers.items()
            if broker in nodes
        }
        if not told:
            return None
        await self._learn_settings(next(broker for broker in answers if broker in nodes))
        partitions: dict[Place, PartitionState] = {}
        for states in told.values():
            for place, state in states.items():
                # A leader knows best who is in sync with it.
                own = told.get(state.leader, {}).get(place)
                partitions[place] = state if own is None else own
        why = shortfall(partitions, told.keys(), self._min_in_sync)
        if why is not None and self._brokers.keys() - told.keys():
            heard = await self._heard([broker for broker in answers if broker in nodes])
            why = shortfall(partitions, told.keys(), self._min_in_sync, heard)
        return why

    async def _heard(self, brokers: Collection[Broker]) -> set[int]:
        """Ask the active controller, by way of these brokers, for the brokers that it hears.

        It names none if no controller answers: then nobody looks after the replicas in sync. Nor if
        the cluster does not tell this client (DescribeQuorum needs Describe on the cluster).
        """
        for body in await self._answers(
            brokers, requests.DESCRIBE_QUORUM, cluster_requests.describe_quorum()
        ):
            if body is None:
                continue
            quorum = cluster_requests.read_describe_quorum(body).value
            if quorum is None or quorum.leader == _NOBODY:
                continue
            # The controllers' clock may differ from ours; the leader always hears itself.
            replicas = [*quorum.voters, *quorum.observers]
            now_ms = max((each.last_fetch_ms for each in replicas), default=0)
            return {each.node for each in replicas if each.last_fetch_ms > now_ms - _HEARD_MS}
        return set()

    def _forget(self, brokers: Iterable[Broker]) -> None:
        for broker in list(brokers):
            self._connections.pop(broker).close()

    async def _ask_all(self, brokers: Collection[Broker]) -> dict[Broker, bytes]:
        """Ask for the topics' partitions; return the answers of those that give one in time."""
        asked = list(brokers)
        answers = await self._answers(asked, requests.METADATA, requests.metadata(self._topics))
        return {
            broker: answer
            for broker, answer in zip(asked, answers, strict=True)
            if answer is not None
        }

    async def _answers(
        self, brokers: Collection[Broker], api: int, parts: Sequence[bytes]
    ) -> list[bytes | None]:
        return await asyncio.gather(*(self._ask(each, api, parts) for each in brokers))

    async def _ask(self, broker: Broker, api: int, parts: Sequence[bytes]) -> bytes | None:
        connection = self._connections.get(broker)
        try:
            if connection is None or not connection.is_open:
                connection = await BrokerConnection.connect(
                    self._loop,
                    broker,
                    self._client_id,
                    self._security,
                    connect_timeout_s=_ANSWER_S,
                )
                self._connections[broker] = connection
            return await connection.ask(api, parts, _ANSWER_S)
        except (OSError, UnicodeError) as error:
            logger.debug("%s:%d does not answer: %s", *broker, error)
            if connection is not None:
                connection.close()
            self._connections.pop(broker, None)
            return None

    async def _learn_settings(self, broker: Broker) -> None:
        now = self._loop.time()
        if self._settings_at is not None and now - self._settings_at < _SETTINGS_S:
            return
        self._settings_at = now
        body = await self._ask(
            broker,
            requests.DESCRIBE_CONFIGS,
            config_requests.describe_topics(self._topics, [_MIN_IN_SYNC]),
        )
        if body is None:
            self._settings_at = None
            return
        # A cluster may forbid it: then nothing is known but who leads.
        for topic, settings in config_requests.read_topics(body).items():
            if settings.get(_MIN_IN_SYNC, "").isdecimal():
                self._min_in_sync[topic] = int(settings[_MIN_IN_SYNC])
