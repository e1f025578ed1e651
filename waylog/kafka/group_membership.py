"""What a member of a consumer group needs beside librdkafka: its generation, a way to leave."""

from __future__ import annotations

import logging
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

from waylog.kafka.errors import error_text

logger = logging.getLogger(__name__)

#: The most polls. A due callback runs at the first one, so a partition that is still assigned after
#: all of them was assigned by hand.
_POLLS_MAX: Final = 20
_POLL_S: Final = 0.05
#: Idle polls in a row that end the wait. One is not enough: a poll whose time a callback took ends
#: although another callback is due.
_QUIET_POLLS: Final = 2
#: Bytes of a group's metadata, as librdkafka writes them, that have its version and the generation.
_GENERATION_END: Final = 11


class Generation:
    """Tells whether a consumer is in a generation of its group.

    The log takes offsets without a generation from everybody, so a transaction that has them is not
    fenced (KIP-447).
    """

    def __init__(self, consumer: Consumer) -> None:
        """`consumer` has not subscribed yet."""
        self._none: Final = _generation(consumer.consumer_group_metadata())

    def is_in(self, metadata: Any) -> bool:
        """Tell whether metadata of the group are those of a member of a generation."""
        # A member that was put out may keep its name, so only this part is compared.
        return _generation(metadata) != self._none


def _generation(metadata: Any) -> bytes:
    return bytes(metadata)[:_GENERATION_END]


def leave_group(consumer: Consumer) -> None:
    """Give the assigned partitions back, then close the consumer. It must have subscribed.

    `close` serves the rebalance callbacks too. But if an assignment has come since the last poll,
    librdkafka may end the group while they run and drop their requests: they and `close` wait for
    ever, some of them with the GIL (`rd_kafka_cgrp_op_serve` once terminated, 2.16; its issue
    4884). So the callbacks are served here, while the group is alive.

    Records that were not polled do not count as read. Raises RuntimeError if the consumer is
    closed already.
    """
    try:
        # Else records read ahead would come out of the polls below, and be committed automatically.
        consumer.pause(consumer.assignment())
        consumer.unsubscribe()
        quiet = 0
        for _ in range(_POLLS_MAX):
            quiet = quiet + 1 if _is_left(consumer) else 0
            if quiet == _QUIET_POLLS:
                break
    except KafkaException as error:
        logger.info("leaving the group: %s", error_text(error))
    finally:
        consumer.close()


def _is_left(consumer: Consumer) -> bool:
    try:
        return consumer.poll(_POLL_S) is None and not consumer.assignment()
    except KafkaException as error:
        logger.info("leaving the group: %s", error_text(error))
        return False
