"""Ids of idempotent producers, from blocks that the controller gives to each broker (KIP-730)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from broker_core import errors
from broker_core.protocol.definitions import ALLOCATE_PRODUCER_IDS
from broker_core.server.cluster.membership import Cluster
from waylog.process.log_throttle import LogThrottle

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
    )

logger = logging.getLogger(__name__)

#: Share of a block that is used up when the next block is requested.
_AHEAD: Final = 0.5


class ProducerIdBlocks:
    """Counts upwards within a block."""

    def __init__(self, broker_id: int, cluster: Cluster) -> None:
        self._broker_id = broker_id
        self._cluster = cluster
        self._next = 0
        self._end = 0
        self._following: tuple[int, int] | None = None
        self._low = 0
        self._is_asking = False
        self._refusals = LogThrottle()

    def next_id(self) -> int:
        """Return an id that nobody else gets; raises CoordinatorLoadInProgress without a block."""
        if self._next >= self._low and self._following is None:
            self._ask()
        if self._next >= self._end:
            # The controller of this node has answered at once, or any controller before.
            if self._following is None:
                raise errors.CoordinatorLoadInProgress()
            first, count = self._following
            self._following = None
            self._next, self._end = first, first + count
            self._low = first + int(count * _AHEAD)
        producer_id = self._next
        self._next += 1
        return producer_id

    def _ask(self) -> None:
        if self._is_asking:
            return
        self._is_asking = True

        def answered(answer: AllocateProducerIdsResponse | None) -> None:
            self._is_asking = False
            if answer is not None and answer["error_code"] == errors.NONE:
                self._following = answer["producer_id_start"], answer["producer_id_len"]
            elif self._refusals.count(asyncio.get_running_loop().time()) is not None:
                why = "no controller answers" if answer is None else f"error {answer['error_code']}"
                logger.warning("there is no new block of producer ids: %s", why)

        body: AllocateProducerIdsRequest = {
            "broker_id": self._broker_id,
            "broker_epoch": self._cluster.lifecycle.epoch,
        }
        self._cluster.channel.send(ALLOCATE_PRODUCER_IDS, body, answered)
