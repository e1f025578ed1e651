"""Reports to the log file and the supervisor when no broker answers a process that only reads."""

from __future__ import annotations

import logging
import time
from typing import Final, Protocol

from confluent_kafka import KafkaException

from waylog.process.notify import notify

logger = logging.getLogger(__name__)

#: Seconds of silence that are reported; a broker that is restarted answers after a few seconds.
SILENT_S: Final = 6.0
_ASK_AGAIN_S: Final = 3.0
_ASK_S: Final = 2.0


class Client(Protocol):
    """The methods of a librdkafka client that are used here."""

    def list_topics(self, topic: str, timeout: float) -> object: ...


class BrokerLiveness:
    """Tracks whether the log answers. All methods are called in one thread."""

    def __init__(self) -> None:
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
            notify("STATUS=ready")

    def silent(self) -> None:
        """Note that the log did not answer."""
        silent_s = time.monotonic() - self._heard_at
        if silent_s > SILENT_S and not self._is_silent:
            self._is_silent = True
            reason = f"nothing heard from the log for {silent_s:.0f} s"
            logger.error("not ready: %s", reason)
            notify(f"STATUS=not ready: {reason}")

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
