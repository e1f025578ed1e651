"""Reports when no broker answers a process that only reads."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from confluent_kafka import KafkaException

from waylog.process.process_status import ProcessStatus

logger = logging.getLogger(__name__)

#: Seconds of silence that are reported; a broker that is restarted answers after a few seconds.
SILENT_S: Final = 6.0
_ASK_AGAIN_S: Final = 3.0
_ASK_S: Final = 2.0
#: The reason of a silence that lasts is asked for again after this time, and reported if it is
#: another one.
_SAY_AGAIN_S: Final = 10.0
_KIND: Final = "log"


class Client(Protocol):
    """The methods of a librdkafka client that are used here."""

    def list_topics(self, topic: str, timeout: float) -> object: ...


class BrokerLiveness:
    """Tracks whether the log answers. All methods are called in one thread."""

    def __init__(self, status: ProcessStatus, why: Callable[[], str | None] | None = None) -> None:
        """`why` may say the reason of a silence that is reported, and may block for seconds."""
        self._status = status
        self._why = why
        self._said: str | None = None
        self._said_at = 0.0
        self._heard_at = self._asked_at = time.monotonic()
        self._is_silent = False
        #: The log was asked, and has not answered since.
        self.unanswered = False

    def heard(self) -> None:
        """Note that the log has answered."""
        self._heard_at = time.monotonic()
        self.unanswered = False
        if self._is_silent:
            self._is_silent = False
            logger.warning("the log answers again")
            self._status.over(_KIND)

    def silent(self) -> None:
        """Note that the log did not answer."""
        now = time.monotonic()
        silent_s = now - self._heard_at
        if silent_s <= SILENT_S or (self._is_silent and now - self._said_at < _SAY_AGAIN_S):
            return
        why = None if self._why is None else self._why()
        self._said_at = time.monotonic()
        if self._is_silent and why == self._said:
            return
        self._is_silent, self._said = True, why
        reason = f"nothing heard from the log for {silent_s:.0f} s"
        if why is not None:
            reason += f": {why}"
        self._status.trouble(_KIND, reason)

    def look(self, client: Client, topic: str) -> None:
        """Ask the log from time to time while no records come: it may be unreachable."""
        now = time.monotonic()
        if now - max(self._heard_at, self._asked_at) < _ASK_AGAIN_S:
            return
        try:
            client.list_topics(topic, timeout=_ASK_S)
        except KafkaException:
            self.unanswered = True
            self.silent()
        else:
            self.heard()
        self._asked_at = time.monotonic()
