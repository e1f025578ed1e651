"""Applies metadata images to this broker: its replicas, and the settings of all brokers."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from broker_core.cluster.image import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    ClusterImage,
    ImageChanges,
)
from broker_core.cluster.settings_records import stored_acls, stored_quotas, stored_scram_users
from broker_core.configuration.config import BrokerConfig
from broker_core.environment import Environment
from broker_core.security.authorizer import Authorizer
from broker_core.security.credentials import ScramUsers
from broker_core.security.quotas import ClientQuotas
from broker_core.server.cluster.expected_topics import ExpectedTopics
from broker_core.server.cluster.topic_sync import TopicSync
from broker_core.server.network.network import Network
from broker_core.server.partitions.identity import check_cluster_id
from broker_core.server.partitions.inventory import PartitionInventory
from broker_core.server.partitions.replica_directories import marked_partitions
from broker_core.server.partitions.topics import Topic, TopicRegistry
from broker_core.server.settings.dynamic_config import DynamicConfig
from broker_core.server.settings.group_settings import GroupSettings
from waylog.config import ConfigError

logger = logging.getLogger(__name__)


class ImageParts(Protocol):
    """The parts of a broker that hold what the metadata says."""

    cluster_id: str
    config: BrokerConfig
    topics: TopicRegistry
    authorizer: Authorizer | None
    scram_users: ScramUsers
    quotas: ClientQuotas
    group_settings: GroupSettings
    dynamic_config: DynamicConfig
    network: Network


class BrokerImageSync:
    """Applies images; the first one opens the replicas that are stored here."""

    def __init__(
        self,
        broker: ImageParts,
        environment: Environment,
        inventory: PartitionInventory,
        deleted: Callable[[Topic], None],
        opened: Callable[[set[tuple[str, int]]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`deleted`, `opened` and `failed` are those of TopicSync."""
        self._broker = broker
        self._environment = environment
        config = broker.config
        self._topics = TopicSync(
            broker.topics,
            config.node_id,
            environment,
            inventory,
            deleted,
            opened,
            failed,
            is_alone=config.is_alone,
        )
        self._expected = ExpectedTopics(broker.topics)
        self._is_loaded = False

    @property
    def waits_for_room(self) -> bool:
        """Tell whether a replica was left out, because there was no room for it."""
        return bool(self._topics.left_out)

    def apply(self, image: ClusterImage, changes: ImageChanges) -> None:
        """Apply a change. Raises KafkaStorageError; ConfigError for another cluster's files."""
        self._apply_settings(image, changes)
        if self._is_loaded:
            self._topics.apply(image, changes)
            self._expected.image_applied()
            return
        config = self._broker.config
        assert image.cluster_id is not None  # the first entry of the metadata log has it
        check_cluster_id(
            config.log_dir,
            config.node_id,
            self._environment,
            image.cluster_id,
            is_new=not marked_partitions(config.log_dir, self._environment.disk),
        )
        self._broker.cluster_id = image.cluster_id
        self._topics.load(image)
        self._is_loaded = True

    def when_open(self, names: Iterable[str], timeout_s: float, then: Callable[[], None]) -> None:
        """See TopicSync."""
        self._topics.when_open(names, timeout_s, then)

    def when_known(
        self, counts: Mapping[str, int], timeout_s: float, then: Callable[[], None]
    ) -> None:
        """Call `then` when this many partitions of topics are known and open, or after a while."""
        self._expected.when_known(
            counts, timeout_s, lambda left_s: self._topics.when_open(counts, left_s, then)
        )

    async def close(self, timeout_s: float = math.inf) -> None:
        """Open no more replicas; return when none is being opened, or after `timeout_s`."""
        self._expected.close()
        await self._topics.close(timeout_s)

    def _apply_settings(self, image: ClusterImage, changes: ImageChanges) -> None:
        broker = self._broker
        if (changes.everything or changes.acls) and broker.authorizer is not None:
            broker.authorizer.load(stored_acls(image))
        if changes.everything or changes.scram_users:
            broker.scram_users.load(stored_scram_users(image))
        if changes.everything or changes.quotas:
            broker.quotas.load(stored_quotas(image))
        for kind, name in image.configs if changes.everything else changes.configs:
            if kind == GROUP_RESOURCE:
                broker.group_settings.replace(name, image.configs.get((kind, name), {}))
        own = BROKER_RESOURCE, str(broker.config.node_id)
        of_all = BROKER_RESOURCE, ""
        if changes.everything or {own, of_all} & changes.configs:
            broker.dynamic_config.load(
                {"cluster": image.configs.get(of_all, {}), "own": image.configs.get(own, {})}
            )
            try:
                broker.dynamic_config.apply(broker.topics, broker.network.limits)
            except ConfigError as error:
                logger.error("settings of brokers do not hold here: %s", error)
