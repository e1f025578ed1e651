"""The active controller: the one node that decides on brokers, topics and settings.

It works on an image that includes its own decisions before they are committed; the response to a
request is sent when the quorum has committed them (`broker_core.cluster.node`).
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from broker_core import errors
from broker_core.cluster.brokers import BrokerControl
from broker_core.cluster.image import ClusterImage
from broker_core.cluster.partitions import PartitionControl
from broker_core.cluster.records import ProducerIds
from broker_core.cluster.settings import ControllerSettings
from broker_core.cluster.topics import TopicControl
from broker_core.cluster.writing import MetadataWriter

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
    )

logger = logging.getLogger(__name__)


class Controller:
    """The parts of the controller; each of their methods writes records or raises BrokerError."""

    def __init__(
        self,
        image: ClusterImage,
        settings: ControllerSettings,
        randomness: random.Random,
        now: float,
    ) -> None:
        self.writer = MetadataWriter(image)
        self.partitions = PartitionControl(self.writer, settings)
        self.brokers = BrokerControl(self.writer, self.partitions, settings, now)
        self.topics = TopicControl(self.writer, settings, randomness)
        self._settings = settings
        self._next_rebalance = (
            now + settings.rebalance_interval if settings.rebalances_leaders else float("inf")
        )

    @property
    def image(self) -> ClusterImage:
        """The image after all decisions, committed or not."""
        return self.writer.image

    def forget_decisions(self, committed: ClusterImage) -> None:
        """Go back to the committed image, after decisions that could not be written."""
        self.writer.image = committed

    def next_deadline(self) -> float:
        """Return when `tick` has something to do if nothing happens before."""
        return min(self.brokers.next_deadline(), self._next_rebalance)

    def tick(self, now: float) -> None:
        """Do everything that is due."""
        self.brokers.tick(now)
        if now >= self._next_rebalance:
            self._next_rebalance = now + self._settings.rebalance_interval
            moved = self.partitions.prefer_first()
            if moved:
                logger.info("%d partitions go back to their preferred leaders", moved)

    def allocate_producer_ids(
        self, body: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """Handle AllocateProducerIds: assign a block of producer ids to one broker (KIP-730)."""
        broker_id, epoch = body["broker_id"], body["broker_epoch"]
        try:
            self.brokers.check_epoch(broker_id, epoch)
        except errors.BrokerError as error:
            return {"error_code": error.code, "producer_id_start": -1, "producer_id_len": 0}
        first = self.image.next_producer_id
        count = self._settings.producer_ids
        self.writer.write([ProducerIds(broker_id, epoch, first + count)])
        return {
            "error_code": errors.NONE,
            "producer_id_start": first,
            "producer_id_len": count,
        }
