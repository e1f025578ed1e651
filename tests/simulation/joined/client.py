"""Common work of all simulated clients: connecting, finding leaders and coordinators, retrying."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from broker_core import errors
from broker_core.protocol.definitions import FETCH, FIND_COORDINATOR, METADATA, SHARE_FETCH
from broker_core.protocol.schema import AnyApi
from broker_core.server.network.peer import Peer
from tests.simulation.joined.checker import Checker, Violation
from tests.simulation.joined.machine import Machine
from tests.simulation.joined.sockets import Network
from tests.simulation.joined.world import World
from waylog.config import Endpoint

Body = dict[str, Any]
Place = tuple[str, int]

#: Error codes after which a client refreshes its metadata and asks again.
AGAIN = frozenset(
    each.code
    for each in (
        errors.NotLeaderOrFollower,
        errors.LeaderNotAvailable,
        errors.NotEnoughReplicas,
        errors.NotEnoughReplicasAfterAppend,
        errors.KafkaStorageError,
        errors.RequestTimedOut,
        errors.NotCoordinator,
        errors.CoordinatorNotAvailable,
        errors.CoordinatorLoadInProgress,
        errors.UnknownLeaderEpoch,
        errors.FencedLeaderEpoch,
        errors.OffsetNotAvailable,
        errors.UnknownTopicOrPartition,
        errors.UnknownTopicId,
        errors.NotController,
        errors.UnknownServerError,
        errors.NetworkException,
    )
)


class Client:
    """A client on a machine of its own."""

    def __init__(
        self,
        world: World,
        network: Network,
        checker: Checker,
        brokers: dict[int, Endpoint],
        name: str,
    ) -> None:
        self.world = world
        self.checker = checker
        self.name = name
        self.brokers = brokers
        #: If set, the client begins nothing new, and finishes what it has begun.
        self.is_stopping = False
        self.is_done = False
        self._network = network
        self._peers: dict[int, Peer] = {}
        self._leaders: dict[Place, int] = {}
        #: The leader epochs of the known leaders.
        self.leader_epochs: dict[Place, int] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._partitions: dict[str, int] = {}
        self._coordinators: dict[tuple[str, int], int] = {}
        self.machine = Machine(world, network, f"10.0.1.{name}", self._main)

    def start(self) -> None:
        """Start the client's machine."""
        self.machine.start()

    async def _main(self, machine: Machine) -> None:
        await self.run()
        self.is_done = True
        await asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Do the client's work; returns when it is told to stop and has nothing left to do."""
        raise NotImplementedError

    def note(self, text: str) -> None:
        """Add a line to the history."""
        self.world.note(f"{self.name}: {text}")

    async def pause(self, seconds: float) -> None:
        """Wait for about this time."""
        await asyncio.sleep(seconds * self.world.random.uniform(0.5, 1.5))

    # --------------------------------------------------------------------------------------- asking

    async def ask(
        self, node_id: int, api: AnyApi, version: int, body: Body, *, timeout_s: float = 1.5
    ) -> Body | None:
        """Send a request to a broker; return its answer, None if there is none."""
        peer = self._peers.get(node_id)
        if peer is None:
            peer = self._peers[node_id] = Peer(self.brokers[node_id], self.name)
        future: asyncio.Future[Body | None] = asyncio.get_running_loop().create_future()

        def answered(answer: Body | None) -> None:
            if future.done():
                return
            if answer is not None and api.key in {FETCH.key, SHARE_FETCH.key}:
                _copy_records(answer)
            future.set_result(answer)

        peer.send(api, version, body, answered)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            # The request may still be carried out, even long after this.
            self.world.faults["request given up"] += 1
            peer.close()
            if self._peers.get(node_id) is peer:
                del self._peers[node_id]
            return None

    def any_broker(self) -> int:
        """Return a random broker."""
        return self.world.random.choice(list(self.brokers))

    async def refresh(self, topic: str) -> None:
        """Ask a random broker for the leaders of a topic's partitions."""
        answer = await self.ask(
            self.any_broker(),
            METADATA,
            12,
            {
                "topics": [{"topic_id": bytes(16), "name": topic}],
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": False,
            },
        )
        if answer is None:
            return
        for each in answer["topics"]:
            is_known = self._topic_ids.get(topic) == each["topic_id"]
            self._topic_ids[topic] = each["topic_id"]
            if each["partitions"]:
                self._partitions[topic] = len(each["partitions"])
            for partition in each["partitions"]:
                place = topic, partition["partition_index"]
                if is_known and partition["leader_epoch"] < self.leader_epochs.get(place, -1):
                    # The broker is behind: its metadata would lead back to an old leader (KIP-320).
                    continue
                self._leaders[place] = partition["leader_id"]
                self.leader_epochs[place] = partition["leader_epoch"]

    async def leader(self, place: Place) -> int | None:
        """Return the leader of a partition, None if no broker knows it."""
        known = self._leaders.get(place)
        if known is None:
            await self.refresh(place[0])
            known = self._leaders.get(place)
        return None if known is None or known < 0 else known

    def partitions(self, topic: str) -> list[int]:
        """Return the known partitions of a topic."""
        return list(range(self._partitions.get(topic, 0)))

    def topic_id(self, topic: str) -> bytes:
        """Return the id of a topic, zeroes if it is not known."""
        return self._topic_ids.get(topic, bytes(16))

    def forget(self, place: Place) -> None:
        """Forget the leader of a partition, which seems to have changed."""
        self._leaders.pop(place, None)

    def is_led_since(self, place: Place, epoch: int) -> None:
        """Note a leader epoch that was seen in records: older leaders do not count (KIP-320)."""
        if epoch > self.leader_epochs.get(place, -1):
            self.leader_epochs[place] = epoch
            self.forget(place)

    async def coordinator(self, key: str, kind: int) -> int | None:
        """Return the coordinator of a group (0) or a transactional id (1), None if unknown."""
        known = self._coordinators.get((key, kind))
        if known is None:
            answer = await self.ask(
                self.any_broker(),
                FIND_COORDINATOR,
                4,
                {"key_type": kind, "coordinator_keys": [key]},
            )
            if answer is None or answer["coordinators"][0]["error_code"]:
                return None
            known = self._coordinators[key, kind] = answer["coordinators"][0]["node_id"]
        return known

    async def ask_coordinator(
        self, key: str, kind: int, api: AnyApi, version: int, body: Body, *, timeout_s: float = 1.5
    ) -> Body | None:
        """Send a request to a coordinator; forget the coordinator if it fails."""
        node_id = await self.coordinator(key, kind)
        if node_id is None:
            await self.pause(0.05)
            return None
        answer = await self.ask(node_id, api, version, body, timeout_s=timeout_s)
        if answer is None or answer.get("error_code") in AGAIN:
            self.lost_coordinator(key, kind)
        return answer

    def lost_coordinator(self, key: str, kind: int) -> None:
        """Forget a coordinator, which seems to have changed."""
        self._coordinators.pop((key, kind), None)

    def violated(self, text: str) -> Violation:
        """Return the violation of a guarantee to this client."""
        return Violation(f"{self.name}: {text}")


def _copy_records(answer: Body) -> None:
    for topic in answer["responses"]:
        for partition in topic["partitions"]:
            partition["records"] = bytes(partition["records"] or b"")


Runner = Callable[[], Coroutine[Any, Any, None]]
