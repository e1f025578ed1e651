"""Leaving a consumer group."""

from __future__ import annotations

import logging
from typing import Final

from confluent_kafka import Consumer, KafkaException

from waylog.kafka.errors import said_by

logger = logging.getLogger(__name__)

#: A callback is due at once. What is assigned after so many polls is assigned by hand.
_POLLS_MAX: Final = 20
_POLL_S: Final = 0.05
#: A poll whose time a callback takes ends though another one is due.
_QUIET_POLLS: Final = 2


def leave_group(consumer: Consumer) -> None:
    """Give back what the group has assigned, then close the consumer. It must have subscribed.

    `close` alone serves the rebalance callbacks too. If an assignment has come since the last poll,
    librdkafka may end the group beneath them and drop what they ask of it: they, and `close`, wait
    for ever, some of them with the interpreter's lock (`rd_kafka_cgrp_op_serve` once terminated,
    2.16; its issue 4884). Here they are served while the group lives.

    Records that were not polled are not taken for read. Raises RuntimeError if the consumer is
    closed already.
    """
    try:
        # What was read ahead would come out of the polls below, and be committed automatically.
        consumer.pause(consumer.assignment())
        consumer.unsubscribe()
        quiet = 0
        for _ in range(_POLLS_MAX):
            quiet = quiet + 1 if _is_left(consumer) else 0
            if quiet == _QUIET_POLLS:
                break
    except KafkaException as error:
        logger.info("leaving the group: %s", said_by(error))
    finally:
        consumer.close()


def _is_left(consumer: Consumer) -> bool:
    try:
        return consumer.poll(_POLL_S) is None and not consumer.assignment()
    except KafkaException as error:
        logger.info("leaving the group: %s", said_by(error))
        return False
