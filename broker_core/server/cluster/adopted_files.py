"""Files from outside the metadata log whose contents a broker that is alone takes into it.

`settings.json` has users that `waylog broker --add-scram` stored while the broker was stopped.
Version 0.1 of a broker without `controller.quorum.voters` had no metadata log: its topics were in
`topics.json`, all settings in `settings.json`, the next producer id in `producer_ids`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from broker_core.cluster.image import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
)
from broker_core.cluster.records import (
    NO_LEADER,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIds,
    TopicRecord,
)
from broker_core.cluster.settings_records import (
    acl_records,
    quota_records,
    scram_records,
    stored_acls,
    stored_quotas,
    stored_scram_users,
)
from broker_core.configuration.config import BrokerConfig
from broker_core.environment import Environment
from broker_core.errors import BrokerError
from broker_core.log.config import LogConfig
from broker_core.server.settings.dynamic_config import DYNAMIC
from broker_core.server.settings.settings_store import SETTINGS_FILE, read_settings
from waylog.config import ConfigError

_TOPICS_FILE: Final = "topics.json"
_PRODUCER_IDS_FILE: Final = "producer_ids"
_NO_BROKER: Final = -1


class AdoptedFiles:
    """The files in a log directory, read once."""

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        """Read the files; raises ConfigError if one is damaged, OSError."""
        self._node_id = config.node_id
        self._directory = config.log_dir
        self._disk = environment.disk
        self._topics: dict[str, Any] = {}
        self._settings: dict[str, Any] = {}
        self._next_producer_id = 0
        self._present: list[Path] = []
        for name, take in (
            (_TOPICS_FILE, self._take_topics),
            (SETTINGS_FILE, self._take_settings),
            (_PRODUCER_IDS_FILE, self._take_producer_ids),
        ):
            path = self._directory / name
            if self._disk.size(path) is not None:
                take(path)
                self._present.append(path)

    def __bool__(self) -> bool:
        return bool(self._present)

    def _take_topics(self, path: Path) -> None:
        try:
            for name, entry in json.loads(self._disk.read(path))["topics"].items():
                uuid.UUID(entry["id"])
                int(entry["partitions"])
                LogConfig.from_properties(entry["config"])
                self._topics[name] = entry
        except (ValueError, KeyError, TypeError, AttributeError, BrokerError) as error:
            # A broker that started without its topics would rename all their logs to strays.
            raise ConfigError(
                f"{path}: the list of topics cannot be read ({error}); put a copy of it back"
            ) from None

    def _take_settings(self, path: Path) -> None:
        self._settings = read_settings(path, self._disk)

    def _take_producer_ids(self, path: Path) -> None:
        try:
            self._next_producer_id = int(self._disk.read(path))
        except ValueError:
            raise ConfigError(
                f"{path}: is damaged, and no id may be given twice; write a number into it that is "
                "larger than the id of any producer"
            ) from None

    def records(self, image: ClusterImage) -> Iterator[MetadataRecord]:
        """Yield what the image lacks; nothing that it has is changed or removed."""
        for name, entry in self._topics.items():
            if name not in image.topics:
                yield from self._topic(name, entry)
        yield from self._of_settings(image)
        if self._next_producer_id > image.next_producer_id:
            yield ProducerIds(_NO_BROKER, _NO_BROKER, self._next_producer_id)

    def _topic(self, name: str, entry: Mapping[str, Any]) -> Iterator[MetadataRecord]:
        topic_id = uuid.UUID(entry["id"]).bytes
        here = (self._node_id,)
        yield TopicRecord(name, topic_id)
        for index in range(int(entry["partitions"])):
            # It is elected, in the next leader epoch, when this broker registers.
            yield PartitionRecord(topic_id, index, here, here, NO_LEADER)
        for key, value in entry["config"].items():
            yield ConfigRecord(TOPIC_RESOURCE, name, key, value)

    def _of_settings(self, image: ClusterImage) -> Iterator[MetadataRecord]:
        settings = self._settings
        users = stored_scram_users(image)
        for user, credentials in settings.get("scram", {}).items():
            users[user] = users.get(user, {}) | credentials
        yield from scram_records(image, users)
        yield from acl_records(image, [*stored_acls(image), *settings.get("acls", ())])
        yield from quota_records(image, [*settings.get("quotas", ()), *stored_quotas(image)])
        of_brokers = settings.get("broker", {})
        for kind, name, properties in (
            (BROKER_RESOURCE, "", of_brokers.get("cluster", {})),
            (BROKER_RESOURCE, str(self._node_id), of_brokers.get("own", {})),
            *((GROUP_RESOURCE, group, own) for group, own in settings.get("groups", {}).items()),
        ):
            present = image.configs.get((kind, name), {})
            for key, value in properties.items():
                if key not in present and (kind == GROUP_RESOURCE or key in DYNAMIC):
                    yield ConfigRecord(kind, name, key, value)

    def remove(self) -> None:
        """Delete the files; to be called when their records are durable. Raises OSError."""
        for path in self._present:
            self._disk.remove(path)
        self._present = []
