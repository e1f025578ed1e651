"""A controller without a quorum: everything it writes counts as committed at once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.cluster.controller import Controller
from broker_core.cluster.image import ClusterImage, PartitionImage, TopicImage
from broker_core.cluster.settings import ControllerSettings

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        BrokerHeartbeatResponse,
    )

Answer = dict[str, object]


class Bench:
    """A controller with brokers and topics; times are seconds."""

    def __init__(self, settings: ControllerSettings | None = None) -> None:
        self.now = 100.0
        self.settings = settings or ControllerSettings(session_timeout=9.0)
        self.controller = Controller(ClusterImage(), self.settings, random.Random(1), self.now)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def register(
        self, broker_id: int, *, process: int = 1, rack: str | None = None, former_epoch: int = -1
    ) -> int:
        answer = self.controller.brokers.register(
            {
                "broker_id": broker_id,
                "cluster_id": "",
                "incarnation_id": bytes([broker_id, process]) * 8,
                "listeners": [],
                "features": [],
                "rack": rack,
                "is_migrating_zk_broker": False,
                "log_dirs": [],
                "previous_broker_epoch": former_epoch,
            },
            self.now,
        )
        assert not answer["error_code"], answer
        return int(answer["broker_epoch"])

    def beat(self, broker_id: int, **more: object) -> BrokerHeartbeatResponse:
        broker = self.image.brokers[broker_id]
        asked: Any = {
            "broker_id": broker_id,
            "broker_epoch": broker.epoch,
            "current_metadata_offset": self.image.offset,
            "want_fence": False,
            "want_shut_down": False,
        }
        return self.controller.brokers.heartbeat(asked | more, self.now)

    def run(self, *broker_ids: int, racks: dict[int, str] | None = None) -> None:
        for broker_id in broker_ids:
            self.register(broker_id, rack=(racks or {}).get(broker_id))
            self.beat(broker_id)

    def kill(self, broker_id: int) -> None:
        self.controller.brokers.unreachable(broker_id, self.image.brokers[broker_id].epoch)

    def create(self, name: str, *replicas: list[int], **configs: str) -> TopicImage:
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        return self.controller.topics.create(
            name, -1, -1, list(replicas), overrides, validate_only=False
        )

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        found = self.image.partition(name, index)
        assert found is not None
        return found

    def alter(self, broker_id: int, name: str, *isr: int, index: int = 0, **more: object) -> int:
        partition = self.partition(name, index)
        asked: Any = {
            "partition_index": index,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "leader_recovery_state": 0,
            "new_isr": list(isr),
        }
        answer = self.controller.partitions.alter(
            {
                "broker_id": broker_id,
                "broker_epoch": self.image.brokers[broker_id].epoch,
                "topics": [
                    {
                        "topic_id": self.image.topics[name].id,
                        "partitions": [asked | more],
                    }
                ],
            }
        )
        if answer["error_code"]:
            return int(answer["error_code"])
        return int(answer["topics"][0]["partitions"][0]["error_code"])


@pytest.fixture
def bench() -> Bench:
    """A controller without brokers."""
    return Bench()
