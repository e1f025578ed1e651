"""Runs this node's part of the metadata quorum: with files, timers and connections.

Everything happens on the event loop. A vote, and what a leader or follower appends, has to be on
the medium before anything is answered. The event loop blocks on the disk for that: a few times a
second at most, when topics or brokers change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from broker_core import errors
from broker_core.cluster.controller import Controller
from broker_core.cluster.image import ClusterImage, ImageChanges, ImageError
from broker_core.cluster.node import Decided, MetadataNode, NotDecided
from broker_core.cluster.records import MetadataRecord
from broker_core.cluster.settings import ControllerSettings
from broker_core.cluster.settings_records import scram_records
from broker_core.configuration.config import BrokerConfig
from broker_core.environment import Environment
from broker_core.log.config import LogConfig
from broker_core.protocol.schema import AnyApi
from broker_core.quorum.entries import ReplicaKey
from broker_core.quorum.file_store import FileElectionStore, FileMetadataLog
from broker_core.quorum.messages import Answer, FetchAnswer, FetchRequest, Outgoing, Request
from broker_core.quorum.replica import QuorumReplica
from broker_core.quorum.replicated_log import LogsDisagree
from broker_core.quorum.settings import QuorumSettings
from broker_core.security.tls import client_context
from broker_core.server.cluster import wire
from broker_core.server.network.peer import Peer
from broker_core.server.settings.settings_store import load_users
from waylog.config import ConfigError

logger = logging.getLogger(__name__)

DIRECTORY: Final = "metadata"
#: Milliseconds that a fetch waits for new entries.
_FETCH_WAIT_MS: Final = 500
#: Errors that end the process: the disk fails, or the log differs from what was committed.
_FATAL: Final = (OSError, errors.KafkaStorageError, ImageError, LogsDisagree, msgspec.DecodeError)

Answered = Callable[[Answer], None]


def quorum_settings(config: BrokerConfig) -> QuorumSettings:
    """Return the timeouts of the property file, in seconds."""
    return QuorumSettings(
        election_timeout=config.election_timeout_ms / 1000,
        election_backoff_max=config.election_backoff_max_ms / 1000,
        fetch_timeout=config.quorum_fetch_timeout_ms / 1000,
    )


def controller_settings(config: BrokerConfig) -> ControllerSettings:
    """Return the controller's settings from the property file."""
    return ControllerSettings(
        session_timeout=config.session_timeout_ms / 1000,
        partitions=config.num_partitions,
        replication_factor=1 if config.is_alone else config.default_replication_factor,
        local_broker=config.node_id,
        topic_defaults=LogConfig.from_properties(config.topic_defaults),
        rebalances_leaders=config.auto_leader_rebalance,
        rebalance_interval=config.leader_imbalance_check_interval_seconds,
    )


def first_users(config: BrokerConfig, environment: Environment) -> list[MetadataRecord]:
    """Return records of the users that `waylog broker --add-scram` has stored here."""
    users = load_users(config.log_dir, environment)
    return list(scram_records(ClusterImage(), users.to_stored()))


class QuorumNode:
    """Runs a MetadataNode; `cluster_id` is the id of a new cluster, None for a random one.

    `changed` is called with each new image. `led` is called when the known leader changes, or
    whether this node's controller is active. `failed` is called once, if the node cannot continue.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        *,
        cluster_id: str | None,
        changed: Callable[[ClusterImage, ImageChanges], None],
        led: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Read the stored state; raises KafkaStorageError, OSError."""
        self._changed = changed
        self._led = led
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        directory = self._directory = config.log_dir / DIRECTORY
        is_only_voter = [node_id for node_id, _ in config.quorum] == [config.node_id]
        self._log = FileMetadataLog(directory, environment, is_only_voter=is_only_voter)
        self._node_id = config.node_id
        randomness = environment.randomness
        replica = QuorumReplica(
            # As in Kafka, voters that are configured by address have no directory ids.
            ReplicaKey(config.node_id, ""),
            self._log,
            FileElectionStore(directory, environment, is_only_voter=is_only_voter),
            frozenset(ReplicaKey(node_id, "") for node_id, _ in config.quorum),
            quorum_settings(config),
            randomness,
            self._loop.time(),
        )
        self.node = MetadataNode(
            replica,
            controller_settings(config),
            randomness,
            cluster_id=cluster_id,
            first_records=() if config.is_alone else first_users(config, environment),
        )
        name = f"quorum-{config.node_id}"
        tls = None if config.controller_tls is None else client_context(config.controller_tls)
        self._peers = {
            node_id: Peer(
                endpoint,
                name,
                tls=tls,
                login=config.controller_login,
                lost=partial(self._disconnected, node_id),
            )
            for node_id, endpoint in config.quorum
            if node_id != config.node_id
        }
        self._timer: asyncio.TimerHandle | None = None
        # Fetches of other nodes that wait for new entries.
        self._fetches: dict[FetchRequest, tuple[Answered, asyncio.TimerHandle]] = {}
        self._leader: tuple[int | None, bool] = None, False
        self._is_settling = False
        self._has_happened = False
        self._closed = False

    @property
    def image(self) -> ClusterImage:
        """The committed metadata, up to what this node knows."""
        return self.node.image

    @property
    def leader_id(self) -> int | None:
        """The node whose controller is active, if known."""
        leader_id = self.node.replica.leader_id
        return None if self._closed and leader_id == self._node_id else leader_id

    @property
    def is_new(self) -> bool:
        """Tell whether the metadata log here is empty."""
        return self._log.end_offset == 0

    @property
    def is_active(self) -> bool:
        """Tell whether this node's controller is active."""
        return self.node.controller is not None and not self._closed

    @property
    def has_ended(self) -> bool:
        """Tell whether this node has left the quorum: it was closed, or its log failed."""
        return self._closed

    def start(self) -> None:
        """Begin to take part in the quorum."""
        self._perform(lambda: None)

    def close(self) -> None:
        """Leave the quorum; a leader tells the other nodes. To be called once."""
        self._perform(lambda: self.node.replica.resign(self._loop.time()))
        if not self._closed:
            self._end()
        self._log.close()

    def _end(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for _, timer in self._fetches.values():
            timer.cancel()
        self._fetches.clear()
        for peer in self._peers.values():
            peer.close()

    # ------------------------------------------------------------------------------------- events

    def decide(self, action: Callable[[Controller], None], decided: Decided) -> None:
        """See `MetadataNode.decide`.

        Raises NotController, KafkaStorageError if the disk is full, and what `action` raises.
        """
        refusals: list[Exception] = []

        def perform() -> None:
            try:
                self.node.decide(action, decided)
            except NotDecided as refusal:
                refusals.append(refusal.reason)
            except _FATAL:
                raise
            except Exception as refusal:
                refusals.append(refusal)

        self._perform(perform)
        if self._closed:
            raise errors.NotController()
        if refusals:
            raise refusals[0]

    def receive(self, request: Request, answered: Answered) -> None:
        """Handle a request of another node; raises the exceptions that the request causes."""
        refusals: list[Exception] = []

        def perform() -> None:
            replica = self.node.replica
            try:
                answer = replica.handle(request, self._loop.time())
            except _FATAL:
                raise
            except Exception as refusal:
                refusals.append(refusal)
                return
            if isinstance(request, FetchRequest) and isinstance(answer, FetchAnswer):
                quiet = not (answer.entries or answer.diverging or answer.snapshot)
                if quiet and not replica.has_news(request):
                    # The same fetch again, from a node that has given up waiting: responses leave a
                    # connection in order, so its first fetch has to be answered too.
                    self._answer_fetch(request)
                    wait = self._loop.call_later(_FETCH_WAIT_MS / 1000, self._answer_fetch, request)
                    self._fetches[request] = answered, wait
                    return
            answered(answer)

        self._perform(perform)
        if refusals:
            raise refusals[0]

    def _answer_fetch(self, request: FetchRequest) -> None:
        waiting = self._fetches.pop(request, None)
        if waiting is not None:
            waiting[1].cancel()
            waiting[0](self.node.replica.handle(request, self._loop.time()))

    def _disconnected(self, node_id: int) -> None:
        if node_id == self.leader_id:
            self._perform(lambda: self.node.replica.leader_disconnected(self._loop.time()))

    def _perform(self, action: Callable[[], None]) -> None:
        if self._closed:
            return
        try:
            self._has_happened = True
            action()
            self._settle()
        except Exception as error:
            is_expected = isinstance(error, (*_FATAL, ConfigError))
            place = ""
            if type(error) is OSError and error.filename is None:
                # Only files of the metadata log are used by their descriptors alone.
                place = f"{self._directory}: "
            logger.critical(
                "this node cannot go on: %s%s",
                place,
                error,
                exc_info=None if is_expected else error,
            )
            # The node's state may not be on the medium. No other node may learn of it: not from a
            # fetch position, not from a vote, not from an answer.
            self._end()
            self._failed(error)

    def _settle(self) -> None:
        """Do what follows from the last event, until nothing new follows."""
        if self._is_settling:
            return
        self._is_settling = True
        try:
            while self._has_happened:
                self._has_happened = False
                self.node.after_event(self._loop.time())
                for outgoing in self.node.replica.take_outgoing():
                    self._send(outgoing)
                for request in [each for each in self._fetches if self._has_news(each)]:
                    self._answer_fetch(request)
                changes = self.node.take_changes()
                if changes is not None:
                    self._changed(self.node.image, changes)
        finally:
            self._is_settling = False
        leader = self.leader_id, self.is_active
        if leader != self._leader:
            self._leader = leader
            self._led()
        self._set_timer()

    def _has_news(self, request: FetchRequest) -> bool:
        return self.node.replica.has_news(request)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self.node.next_deadline(), self._tick)

    def _tick(self) -> None:
        self._perform(lambda: self.node.tick(self._loop.time()))

    # -------------------------------------------------------------------------------- connections

    def _send(self, outgoing: Outgoing) -> None:
        request = outgoing.request
        api, body = wire.encode_request(request, self.image.cluster_id, _FETCH_WAIT_MS)
        peer = self._peers.get(outgoing.node_id)
        if peer is None:
            self._loop.call_soon(self._answered, outgoing, api, None)
            return
        peer.send(api, api.versions[1], body, partial(self._answered, outgoing, api))

    def _answered(self, outgoing: Outgoing, api: AnyApi, body: Mapping[str, object] | None) -> None:
        answer: Answer | None = None
        if body is not None and body["error_code"] == errors.NONE:
            try:
                answer = wire.decode_answer(api, body)
            except (IndexError, ValueError) as error:
                logger.warning("node %d answers nonsense: %s", outgoing.node_id, error)
        elif body is None and isinstance(outgoing.request, FetchRequest):
            # The other node's process may be gone.
            self._disconnected(outgoing.node_id)
        self._perform(
            lambda: self.node.replica.on_answer(outgoing.request, answer, self._loop.time())
        )
