"""One running broker: its parts, and how they start and stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from broker_core import errors
from broker_core.cluster.image import ImageChanges
from broker_core.configuration.config import BrokerConfig
from broker_core.coordinator.offsets import OFFSETS_TOPIC
from broker_core.coordinator.sharing.share_records import STATE_TOPIC
from broker_core.coordinator.transaction import TRANSACTIONS_TOPIC
from broker_core.environment import Environment
from broker_core.protocol.definitions import APIS
from broker_core.security.authorizer import Authorizer
from broker_core.security.credentials import ScramUsers
from broker_core.security.failures import LoginFailures
from broker_core.security.quotas import ClientQuotas
from broker_core.server.authorization import authorize
from broker_core.server.cluster.broker_image import BrokerImageSync
from broker_core.server.cluster.forwarding import FORWARDED
from broker_core.server.cluster.membership import Cluster
from broker_core.server.cluster.producer_id_blocks import ProducerIdBlocks
from broker_core.server.cluster.replication import Replication
from broker_core.server.cluster.status_page import status_page
from broker_core.server.cluster.view import ClusterView
from broker_core.server.controller_network import controller_network
from broker_core.server.coordination.coordinator_gate import COORDINATED, is_coordinated_here
from broker_core.server.coordination.groups import Groups
from broker_core.server.coordination.transactions import Transactions
from broker_core.server.dispatch import (
    administration_apis,
    cluster_apis,
    group_apis,
    handlers,
    login_apis,
    record_apis,
    share_apis,
    transaction_apis,
)
from broker_core.server.long_requests import LongRequests
from broker_core.server.metrics import renderer
from broker_core.server.metrics_http import MetricsServer
from broker_core.server.network.network import Network
from broker_core.server.network.request import AnyRequest
from broker_core.server.network.request_turns import RequestTurns
from broker_core.server.network.throttling import Throttling
from broker_core.server.partitions.batch_opener import BatchOpener
from broker_core.server.partitions.fetch_sessions import FetchSessions
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.housekeeping import Housekeeping
from broker_core.server.partitions.inventory import PartitionInventory
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.replica_sessions import ReplicaSessions
from broker_core.server.partitions.storage_watch import StorageWatch
from broker_core.server.partitions.topics import Topic, TopicRegistry
from broker_core.server.settings.dynamic_config import DynamicConfig
from broker_core.server.settings.group_settings import GroupSettings
from broker_core.server.sharing.share_coordinator import ShareCoordinator
from broker_core.server.sharing.share_coordinator_client import ShareCoordinatorClient
from broker_core.server.sharing.share_groups import ShareGroups
from broker_core.server.sharing.share_partitions import SharePartitions
from waylog.config import Endpoint
from waylog.network.connection_pool import ConnectionPool
from waylog.network.peer_parties import ClientIdentifier
from waylog.observability.metrics_token import ensure_metrics_token
from waylog.process.file_limit import room_for_connections

logger = logging.getLogger(__name__)

#: APIs that every broker answers itself.
_FOR_ANY_BROKER: Final = frozenset(APIS) - FORWARDED - COORDINATED
#: Seconds that an end after a failure waits for flushes, and for replicas that are being opened.
_FAILED_CLOSE_S: Final = 1.0


class Broker:
    """A broker: its parts, and who hears of what from whom. Created by `start_broker`."""

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        self.config = config
        self.node_id = config.node_id
        #: Address of the first listener, and the address that its clients are told.
        self.endpoint = config.listeners[0].endpoint
        self.advertised = config.listeners[0].advertised or self.endpoint
        self.metrics_server: MetricsServer | None = None
        self.metrics_endpoint: Endpoint | None = None
        self._parties = ClientIdentifier(count_addresses=False)
        #: Connections of all listeners and of the metrics server.
        self.connection_pool = ConnectionPool(room_for_connections(), self._parties.of)
        self.login_failures = LoginFailures(config.failed_authentication_delay_ms)
        #: Fails when the broker cannot continue; the process should end with an error then.
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Known when `start` has returned.
        self.cluster_id = ""
        #: Handlers report failed writes here.
        self.storage = StorageWatch(config.log_dir, environment)
        self._closed = False
        self.clock = environment.clock
        self._environment = environment
        environment.disk.make_directory(config.log_dir)
        self._lock = environment.disk.lock(config.log_dir)
        try:
            self.topics = TopicRegistry(config, environment)
            self.scram_users = ScramUsers()
            self.authorizer = _authorizer(config)
            self.quotas = ClientQuotas(config.quota_window_num, config.quota_window_size_seconds)
            self._throttling = Throttling(
                self.quotas, self.topics.partition_count, environment.clock
            )
            self.dynamic_config = DynamicConfig(config)
            self.group_settings = GroupSettings(config)
            self.network = Network(
                config,
                self.scram_users,
                self.handle,
                connections=self.connection_pool,
                environment=environment,
            )
            self.network.limits.creation_rate_of = self.quotas.connection_rate
            self.cluster = Cluster(config, self.topics, self, environment, self.cannot_go_on)
            self._inventory = _inventory(config, environment)
            if self._inventory.lacks_records():
                self.cluster.lifecycle.life.distrust_former()
            self.controller_network = controller_network(self, environment)
            self.view = ClusterView(self.cluster)
            self.producer_ids = ProducerIdBlocks(config.node_id, self.cluster)
        except BaseException:
            self._lock.release()
            raise
        self.flusher = Flusher(
            environment.threads.worker("flusher"), environment.clock, self.storage_failed
        )
        self.batch_opener = BatchOpener(environment.threads.worker("batches"))
        self.replication = Replication(
            config,
            self.cluster,
            self.topics,
            self.flusher,
            environment.clock,
            self.storage_failed,
        )
        self.dynamic_config.set_replication_rates = self.replication.set_rates
        self.groups = Groups(config, self.topics, self.flusher, environment)
        self.groups.coordinator.consumer_settings = self.group_settings.of_consumers
        self._prepare_share_groups()
        self.transactions = Transactions(
            config,
            self.topics,
            self.flusher,
            self.groups,
            self.producer_ids.next_id,
            self.replication,
        )
        self.replication.start(
            {
                OFFSETS_TOPIC: self.groups.shards,
                TRANSACTIONS_TOPIC: self.transactions.shards,
                STATE_TOPIC: self.share_coordinator.shards,
            }
        )
        self.groups.start()
        self.transactions.start()
        self.fetch_sessions = FetchSessions(config.fetch_session_slots, environment.randomness)
        self.replica_sessions = ReplicaSessions(
            config,
            self.topics,
            self.authorizer,
            self.replication.replicas.leader_quota,
            self.cluster.is_registered,
        )
        self._housekeeping = Housekeeping(
            *(config, self.topics, self.flusher, environment, self.storage),
            has_room=self._open_left_out,
            cannot_go_on=self._cannot_flush,
        )
        self.dynamic_config.set_cleaner_backoff = self._housekeeping.set_cleaner_backoff
        self._subscribe()
        self.fetch_turns = RequestTurns(asyncio.get_running_loop(), environment.clock.monotonic)
        self.request_turns = self.network.turns
        self._long_requests = LongRequests(
            self.request_turns,
            self.topics,
            self._handle_one,
            self.when_known,
            config.num_partitions,
        )
        self._handlers = handlers(
            record_apis(self),
            group_apis(self),
            transaction_apis(self),
            share_apis(self),
            cluster_apis(self),
            administration_apis(self),
            login_apis(self.login_failures),
        )

    def _prepare_share_groups(self) -> None:
        config, settings, clock = self.config, self.group_settings, self.clock
        self.share_coordinator = ShareCoordinator(self.topics, self.flusher, clock)
        self.share_states = ShareCoordinatorClient(
            self.share_coordinator,
            self.replication,
            lambda: self.cluster.create_internal_topic(STATE_TOPIC),
        )
        self.share_partitions = SharePartitions(config, settings, self.share_states, clock)
        self.share_groups = ShareGroups(
            self.topics,
            settings,
            self.share_states,
            self.share_partitions,
            clock,
            self.groups.append_beside,
        )
        self.groups.beside = self.share_groups

    def _subscribe(self) -> None:
        """Have the parts told of what is decided elsewhere."""
        self._image_sync = BrokerImageSync(
            self,
            self._environment,
            self._inventory,
            self._topic_deleted,
            self._replicas_opened,
            self.cannot_go_on,
        )
        # Replicas are opened before they lead or follow.
        self.cluster.subscribers += (self._image_sync.apply, self.replication.apply)
        self.group_settings.subscribers += (
            self.share_partitions.settings_changed,
            self.groups.settings_changed,
        )

    def _topic_deleted(self, topic: Topic) -> None:
        """Forget what groups have stored of a topic: a new one of its name has other records."""
        self.groups.forget_topic(topic.name)
        self.share_coordinator.forget_topic(topic.topic_id)
        self.share_partitions.forget_topic(topic.topic_id)

    def _replicas_opened(self, places: set[tuple[str, int]]) -> None:
        """Let replicas lead or follow that were opened later than their image was applied."""
        self.replication.apply(self.cluster.image, ImageChanges(partitions=places))

    def when_open(self, names: Iterable[str], timeout_ms: int, then: Callable[[], None]) -> None:
        """Call `then` when the replicas here of topics that were just decided on are open.

        No replica is waited for longer than `timeout_ms`.
        """
        # What is decided is applied in this iteration of the event loop.
        wait = self._image_sync.when_open
        asyncio.get_running_loop().call_soon(wait, names, timeout_ms / 1000, then)

    def when_known(
        self, counts: Mapping[str, int], timeout_ms: int, then: Callable[[], None]
    ) -> None:
        """See ClientRequests."""
        self._image_sync.when_known(counts, timeout_ms / 1000, then)

    def _open_left_out(self) -> None:
        """Open the replicas that had no room on the disk."""
        if self._image_sync.waits_for_room:
            self.cluster.apply_again()

    async def start(self) -> None:
        """Start to serve; return when the controller has unfenced this broker."""
        self._parties.open()
        self.network.bind()
        first = self.config.listeners[0].name
        self.endpoint = self.network.endpoints[first]
        self.advertised = self.network.listeners[first].security.advertised
        if self.controller_network is not None:
            self.controller_network.bind()
            await self.controller_network.serve()
        self.cluster.start()
        await self._unless_failed(self.cluster.join(self.network.addresses))
        await self.network.serve()
        await self._unless_failed(self.cluster.lifecycle.begin())
        self._housekeeping.start()
        if self.config.metrics_listener is not None:
            self.metrics_server = MetricsServer(
                renderer(self),
                self.problems,
                lambda: status_page(self.cluster, self.node_id),
                self.config.metrics_hosts,
                _metrics_token(self.config),
                connections=self.connection_pool,
            )
            self.metrics_endpoint = self.metrics_server.start(self.config.metrics_listener)
            logger.info("metrics at http://%s/metrics", self.metrics_endpoint)

    @property
    def networks(self) -> tuple[Network, ...]:
        """The network of the clients' listeners, and that of the controllers' if there is one."""
        if self.controller_network is None:
            return (self.network,)
        return (self.network, self.controller_network)

    def problems(self) -> dict[str, str]:
        """Return what keeps this broker from serving, by part; empty if nothing does."""
        found = {
            "storage": self.storage.reason,
            "certificate": "; ".join(
                problem
                for each in self.networks
                if (problem := each.certificate_problem()) is not None
            )
            or None,
            "controller": self.cluster.lifecycle.trouble,
            "partitions": self._offline_partitions(),
            "process": str(self.failed.exception()) if self.failed.done() else None,
        }
        return {part: reason for part, reason in found.items() if reason is not None}

    def _offline_partitions(self) -> str | None:
        offline = [f"{topic.name}-{index}" for topic in self.topics for index in topic.offline]
        return f"offline, see the log: {', '.join(sorted(offline))}" if offline else None

    async def _unless_failed(self, step: Coroutine[Any, Any, None]) -> None:
        """Await a step that depends on other nodes; raises the error if the broker fails."""
        task = asyncio.ensure_future(step)
        try:
            await asyncio.wait({task, self.failed}, return_when=asyncio.FIRST_COMPLETED)
            await (self.failed if self.failed.done() else task)
        finally:
            task.cancel()

    async def close(self) -> None:
        """Stop serving, make everything durable and mark the shutdown as clean.

        A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        await self.cluster.leave()
        await self.network.close()
        if self.metrics_server is not None:
            await self.metrics_server.close()
        self._parties.close()
        self.groups.close()
        self.share_groups.close()
        self.share_partitions.close()
        self.share_states.close()
        self.share_coordinator.close()
        self.transactions.close()
        self.replication.close()
        self.replica_sessions.close()
        await self._housekeeping.close()
        self.batch_opener.close()
        # What has failed unexpectedly may never end.
        timeout_s = _FAILED_CLOSE_S if self.failed.done() else math.inf
        await self._image_sync.close(timeout_s)
        await self.flusher.close(timeout_s=timeout_s)
        try:
            self.topics.close()
        except errors.KafkaStorageError as error:
            logger.error("the shutdown is not clean: %s", error)
        except Exception:
            logger.exception("the shutdown is not clean")
        else:
            if not self.failed.done():
                self.cluster.lifecycle.life.end()
        await self.cluster.close()
        if self.controller_network is not None:
            await self.controller_network.close()
        self._lock.release()
        if self.failed.done():
            self.failed.exception()  # it has been logged
        else:
            self.failed.cancel()

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return sum(listener.connections for listener in self.network.listeners.values())

    # ------------------------------------------------------------------------------------ requests

    def handle(self, request: AnyRequest) -> None:
        """Answer a request, now or later."""
        if not self._long_requests.takes(request):
            self._handle_one(request)

    def _handle_one(self, request: AnyRequest) -> None:
        key = request.header.api.key
        is_for_any = key in _FOR_ANY_BROKER
        if not is_for_any and self.cluster.forwards(request):
            return
        if self.authorizer is not None and not authorize(self, request):
            return
        if not is_for_any and not is_coordinated_here(self, request):
            return
        handler = self._handlers[key]
        if not self.quotas.active:
            handler(request)
            return
        self._throttling.before(request)
        began = time.perf_counter()
        handler(request)
        self._throttling.after(request, time.perf_counter() - began)

    # ------------------------------------------------------------------------------------- inside

    def cannot_go_on(self, error: Exception) -> None:
        """Set `failed`: the broker has to end."""
        if not self.failed.done():
            self.failed.set_exception(error)
            self.cluster.lifecycle.life.distrust()

    def _cannot_flush(self, error: Exception) -> None:
        if not self.failed.done():
            logger.critical("%s: %s; the broker stops", self.config.log_dir, error)
            self.cannot_go_on(error)

    def storage_failed(self, partition: Partition, error: errors.BrokerError) -> None:
        """Stop the broker because a partition cannot be written; other brokers can take over."""
        partition.fail(errors.KafkaStorageError.code)
        self.storage.failed(error)
        if not self.failed.done():
            # The kernel may have dropped pages that it could not write. Only a new start, which
            # reads the files, finds out what is stored.
            logger.critical("%s: %s; the broker stops", partition, error)
            self.cannot_go_on(error)


def _inventory(config: BrokerConfig, environment: Environment) -> PartitionInventory:
    inventory = PartitionInventory(config.log_dir, environment.disk)
    if inventory.problem is not None:
        logger.warning("%s %s", inventory.path, inventory.problem)
    return inventory


def _authorizer(config: BrokerConfig) -> Authorizer | None:
    if config.authorizer is None:
        return None
    return Authorizer(
        super_users=config.super_users, allow_if_no_acl=config.allow_everyone_if_no_acl_found
    )


async def start_broker(config: BrokerConfig, environment: Environment | None = None) -> Broker:
    """Start a broker on the running event loop; `endpoint` is its address, `close()` stops it.

    Raises ConfigError, KafkaStorageError, OSError.
    """
    broker = Broker(config, environment or Environment.real())
    try:
        await broker.start()
    except BaseException:
        await broker.close()
        raise
    return broker


def _metrics_token(config: BrokerConfig) -> str | None:
    """Return the metrics token; None if there are no metrics, or if they are public.

    Raises OSError.
    """
    if config.metrics_listener is None or config.metrics_access == "public":
        return None
    try:
        return ensure_metrics_token(config.metrics_token_file or config.log_dir / "metrics.token")
    except ValueError as error:
        raise OSError(errno.EINVAL, f"metrics.token.file: {error}") from error
