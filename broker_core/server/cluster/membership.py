"""A broker's membership in a cluster: its part of the quorum, the metadata, the controller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.cluster.image import BrokerImage, ClusterImage, ImageChanges
from broker_core.cluster.records import ListenerAddress
from broker_core.configuration.config import BrokerConfig
from broker_core.coordinator.sharing.share_records import STATE_TOPIC
from broker_core.coordinator.transaction import TRANSACTIONS_TOPIC
from broker_core.environment import Environment
from broker_core.protocol.definitions import BROKER_HEARTBEAT, ENVELOPE
from broker_core.quorum.leader import Leader
from broker_core.quorum.messages import Answer
from broker_core.security.principal import Principal
from broker_core.server.cluster import wire
from broker_core.server.cluster.adopted_files import AdoptedFiles
from broker_core.server.cluster.channel import ControllerChannel
from broker_core.server.cluster.controller_service import ControllerService
from broker_core.server.cluster.forwarding import (
    FORWARDED,
    ClientRequests,
    Forwarding,
    open_envelope,
)
from broker_core.server.cluster.lifecycle import BrokerLifecycle
from broker_core.server.cluster.quorum_description import quorum_description
from broker_core.server.cluster.quorum_node import DIRECTORY, QuorumNode
from broker_core.server.cluster.watch import BrokerWatch, is_refused
from broker_core.server.network.request import AnyRequest
from broker_core.server.partitions.identity import stored_cluster_id
from broker_core.server.partitions.replica_directories import marked_partitions
from broker_core.server.partitions.topics import Topic, TopicRegistry
from broker_core.server.settings.admin_operations import AdminOperations, Done
from waylog.config import ConfigError
from waylog.process.log_throttle import LogThrottle

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        CreateTopicsResponseTopic,
        DescribeQuorumResponsePartition,
    )

logger = logging.getLogger(__name__)

#: Called with each new image and its changes.
Subscriber = Callable[[ClusterImage, ImageChanges], None]

#: Seconds between two log lines of a broker that finds no controller.
_PATIENCE_S: Final = 10.0
_PATIENCE_FIRST_S: Final = 3.0
#: Seconds for which Metadata still names a broker that has stopped. librdkafka drops a broker that
#: is no longer named. It then lacks its partitions for a second, while they move to other brokers.
_FAREWELL_S: Final = 5.0
#: Seconds between two checks whether there is still a quorum.
_LOOK_S: Final = 0.2
_QUORUM_APIS: Final = frozenset({52, 53, 54, 30001, 30002})


class Cluster:
    """This broker's membership in a cluster; call `start`, `join` and `close` in this order."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicRegistry,
        clients: ClientRequests,
        environment: Environment,
        failed: Callable[[Exception], None],
    ) -> None:
        """Read the stored state; raises KafkaStorageError, OSError, ConfigError.

        `clients` answers the requests that other brokers forward.
        """
        self._config = config
        self._topics = topics
        self._clients = clients
        self._now_ms = environment.clock.now_ms
        self._adopted = AdoptedFiles(config, environment) if config.is_alone else None
        self._shell = QuorumNode(
            config,
            environment,
            cluster_id=stored_cluster_id(config.log_dir, config.node_id, environment)
            if config.is_alone
            else None,
            changed=self._image_changed,
            led=self._led,
            failed=failed,
        )
        if config.is_alone and not self._adopted:
            self._check_is_whole(environment)
        self._service = ControllerService(self._shell)
        envelopes = partial(open_envelope, clients)
        self.channel = ControllerChannel(self._shell, self._service, config, envelopes)
        # Clients' requests do not stand before this broker's heartbeats.
        self._forwarding = Forwarding(
            ControllerChannel(self._shell, self._service, config, envelopes), clients.when_known
        )
        self.lifecycle = BrokerLifecycle(
            config, self.channel, lambda: self._shell.image, environment
        )
        self._watch = BrokerWatch(self._shell)
        #: Called with each new image; `join` makes the first calls, with everything as changed.
        self.subscribers: list[Subscriber] = []
        self._creating: set[str] = set()
        self._monotonic = environment.clock.monotonic
        self._not_created = LogThrottle()
        #: Seconds for which Metadata still names a broker that has stopped.
        self.farewell_s = _FAREWELL_S
        # Brokers that serve, and the times at which others stopped, as seen by this broker.
        self._serving: set[int] = set()
        self._gone_at: dict[int, float] = {}
        self._progress = asyncio.Event()
        self._has_joined = False

    def _check_is_whole(self, environment: Environment) -> None:
        """Raise ConfigError if there are logs of topics, but no metadata to say which topics."""
        directory = self._config.log_dir
        if self._shell.is_new and (names := marked_partitions(directory, environment.disk)):
            # Nobody else has it, and with a new one all of them would be logs of no topic.
            raise ConfigError(
                f"{directory / DIRECTORY} has no metadata, but there are the logs of "
                f"{len(names)} partitions ({names[0]}, ...): put a copy of it back; to begin "
                "without their topics, move their folders away"
            )

    # -------------------------------------------------------------------------------- life

    def start(self) -> None:
        """Start this node's part of the quorum; raises OSError."""
        self._shell.start()

    async def join(self, listeners: list[ListenerAddress]) -> None:
        """Register; return when this broker has all metadata up to its registration.

        Raises InconsistentClusterId.
        """
        logger.info("looking for the controller among %d nodes", len(self._config.quorum))
        while self.image.cluster_id is None:
            await self._progressed()
        if self._adopted:
            while not self.is_active:
                await self._progressed()
            await self._adopt(self._adopted)
        await self.lifecycle.register(listeners, self.image.cluster_id)
        while self.image.offset <= self.lifecycle.epoch:
            await self._progressed()
        self._has_joined = True
        for subscriber in self.subscribers:
            subscriber(self.image, ImageChanges(everything=True))

    async def _adopt(self, files: AdoptedFiles) -> None:
        """Take the contents of files into the metadata log, which has them alone afterwards."""
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._shell.decide(
            lambda controller: controller.writer.write(files.records(controller.image)),
            written.set_result,
        )
        if not await written:
            raise errors.NotController()
        files.remove()

    async def _progressed(self) -> None:
        self._progress.clear()
        patience_s = _PATIENCE_FIRST_S
        while True:
            try:
                async with asyncio.timeout(patience_s):
                    await self._progress.wait()
                return
            except TimeoutError:
                patience_s = _PATIENCE_S
                logger.warning(
                    "no majority of the controllers answers yet: %s (controller.quorum.voters)",
                    ", ".join(f"{node} at {place}" for node, place in self._config.quorum),
                )

    async def leave(self) -> None:
        """Let others take over; return when they have, or when no controller answers."""
        if self._shell.has_ended and self._shell.leader_id is None:
            # This node's controller was the active one; no other becomes active before it is gone.
            await self.lifecycle.close()
            return
        leaving = asyncio.create_task(self.lifecycle.shut_down())
        watching = asyncio.create_task(self._quorum_gone())
        await asyncio.wait({leaving, watching}, return_when=asyncio.FIRST_COMPLETED)
        for task in (leaving, watching):
            task.cancel()
        await asyncio.gather(leaving, watching, return_exceptions=True)
        await self.lifecycle.close()

    async def _quorum_gone(self) -> None:
        """Return when so many controllers refuse connections that they have no majority."""
        voters = self._config.quorum
        others = [each for node, each in voters if node != self._config.node_id]
        majority = len(voters) // 2 + 1
        while True:
            await asyncio.sleep(_LOOK_S)
            refused = sum([await is_refused(each.host, each.port) for each in others])
            if len(voters) - refused < majority:
                logger.info("most controllers are gone; nobody can take over from this broker")
                return

    async def close(self) -> None:
        """Leave the quorum and close all connections to controllers."""
        await self._watch.close()
        self.channel.close()
        self._forwarding.close()
        self._shell.close()

    # ------------------------------------------------------------------------------- image

    @property
    def image(self) -> ClusterImage:
        """The committed metadata, up to what this node knows."""
        return self._shell.image

    @property
    def is_active(self) -> bool:
        """Tell whether this node's controller is the active one."""
        return self._shell.is_active

    @property
    def controller_id(self) -> int:
        """The node whose controller is active, if known; else -1."""
        leader_id = self._shell.leader_id
        return -1 if leader_id is None else leader_id

    @property
    def quorum(self) -> QuorumNode:
        """This node's part of the quorum."""
        return self._shell

    def describe_quorum(self) -> DescribeQuorumResponsePartition | None:
        """Describe the metadata log for DescribeQuorum; None if another node is its leader."""
        return quorum_description(self._shell, self._now_ms())

    def quorum_lag(self) -> dict[int, int]:
        """Return how many entries each other voter lacks; empty if another node is the leader."""
        replica = self._shell.node.replica
        role = replica.role
        if not isinstance(role, Leader):
            return {}
        end_offset = replica.log.end_offset
        return {
            key.node_id: end_offset - progress.fetch_offset
            for key, progress in role.followers.items()
            if key in replica.voters
        }

    def is_registered(self, broker_id: int) -> bool:
        """Tell whether a broker with this id is registered."""
        return broker_id in self.image.brokers

    def brokers(self) -> list[BrokerImage]:
        """Return the brokers that are not fenced; they serve, or are about to stop."""
        return [each for each in self.image.brokers.values() if not each.fenced]

    def named_brokers(self) -> list[BrokerImage]:
        """Return the brokers that Metadata names: also those that stopped a moment ago."""
        now = asyncio.get_running_loop().time()
        return [
            each
            for each in self.image.brokers.values()
            if not each.fenced or now < self._gone_at.get(each.id, float("-inf")) + self.farewell_s
        ]

    def _image_changed(self, image: ClusterImage, changes: ImageChanges) -> None:
        now = asyncio.get_running_loop().time()
        for broker_id in image.brokers if changes.everything else changes.brokers:
            broker = image.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                self._serving.add(broker_id)
                self._gone_at.pop(broker_id, None)
            elif broker_id in self._serving:
                self._serving.remove(broker_id)
                self._gone_at[broker_id] = now
        self._progress.set()
        if self._has_joined:
            for subscriber in self.subscribers:
                subscriber(image, changes)

    def apply_again(self) -> None:
        """Apply the whole image once more."""
        self._image_changed(self.image, ImageChanges(everything=True))

    def _led(self) -> None:
        self._progress.set()
        if self._shell.is_active:
            logger.info("this node's controller is active")
            self._watch.look_around()
        self.lifecycle.beat_now()

    # ------------------------------------------------------------------------- decisions

    def administer(self, action: Callable[[AdminOperations], None], done: Done) -> None:
        """See Administration; only for the node of the active controller."""

        def decided(is_committed: bool) -> None:
            done(None if is_committed else errors.NotController())

        try:
            self._shell.decide(
                lambda controller: action(AdminOperations(self._config, self._topics, controller)),
                decided,
            )
        except errors.BrokerError as error:
            done(error)

    def create_internal_topic(self, name: str) -> None:
        """Ask the controller to create a coordinator's topic; do not wait for it."""
        config = self._config
        if name == TRANSACTIONS_TOPIC:
            partitions = config.transaction_topic_partitions
            factor = config.transaction_topic_replication_factor
            segment_bytes = config.transaction_topic_segment_bytes
        elif name == STATE_TOPIC:
            partitions = config.share_state_topic_partitions
            factor = config.share_state_topic_replication_factor
            segment_bytes = config.share_state_topic_segment_bytes
        else:
            partitions = config.offsets_topic_partitions
            factor = config.offsets_topic_replication_factor
            segment_bytes = config.offsets_topic_segment_bytes
        if config.is_alone:
            factor = 1  # Kafka's default of 3 could never be reached
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(segment_bytes),
        }
        # The topic is created for the broker, not for the client.
        self.create_topic(name, partitions, factor, configs, config.broker_principal)

    def create_topic(
        self,
        name: str,
        partitions: int,
        factor: int,
        configs: Mapping[str, str],
        principal: Principal,
    ) -> None:
        """Ask the controller to create a topic for `principal`; do not wait for it."""
        if name in self._creating:
            return
        self._creating.add(name)

        def answered(results: Sequence[CreateTopicsResponseTopic]) -> None:
            self._creating.discard(name)
            for each in results:
                if each["error_code"] not in {errors.NONE, errors.TopicAlreadyExists.code}:
                    self._say_not_created(name, each.get("error_message"))

        self._forwarding.create_topic(name, partitions, factor, configs, principal, answered)

    def _say_not_created(self, name: str, reason: str | None) -> None:
        # Clients may ask for as many topics as they like.
        unsaid = self._not_created.count(self._monotonic())
        if unsaid is not None:
            before = f" ({unsaid} more before)" if unsaid else ""
            logger.warning("topic %s cannot be created: %s%s", name, reason, before)

    def create_on_demand(self, name: str, principal: Principal) -> Topic:
        """Have the controller create a topic that a client asks for.

        Raises LeaderNotAvailable, unless this node's controller has created it at once.
        """
        self.create_topic(name, -1, -1, {}, principal)
        topic = self._topics.get(name)
        if topic is None:
            raise errors.LeaderNotAvailable()
        return topic

    # ---------------------------------------------------------------------------- requests

    def forwards(self, request: AnyRequest) -> bool:
        """Tell whether a request is for the controller, and forward it in that case."""
        if request.header.api.key not in FORWARDED or self.is_active:
            return False
        self._forwarding.forward(request)
        return True

    def serve(self, request: AnyRequest) -> None:
        """Answer another node's request: to the quorum, to the controller, or one it forwards."""
        key = request.header.api.key
        if key in _QUORUM_APIS:
            self._handle_quorum(request)
        elif self._service.serves(request.header.api):
            if key == BROKER_HEARTBEAT.key:
                self._watch.heard(request)
            self._service.perform(request.header.api, request.body, request.reply)
        elif key == ENVELOPE.key:
            if self.is_active:
                open_envelope(self._clients, request.body, request.reply)
            else:
                request.reply({"error_code": errors.NotController.code})
        else:
            raise ValueError(f"{request.header.api.name} is not served")

    def _handle_quorum(self, request: AnyRequest) -> None:
        asked, known = request.body["cluster_id"], self.image.cluster_id
        if asked is not None and known is not None and asked != known:
            request.reply({"error_code": errors.InconsistentClusterId.code})
            return

        def answered(answer: Answer) -> None:
            request.reply({"error_code": errors.NONE, **wire.encode_answer(answer)})

        try:
            decoded = wire.decode_request(request.header.api, request.body)
        except IndexError:
            request.reply({"error_code": errors.InvalidRequest.code})
            return
        self._shell.receive(decoded, answered)
