"""Remembers and logs why a service does not come through to its brokers while it tries again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from waylog.kafka.connection.mismatch import explain_all
from waylog.kafka.connection.security import ConnectionSecurity
from waylog.kafka.protocol.requests import Broker

logger = logging.getLogger(__name__)

#: The brokers are asked for the reason, and it is logged, once in this time while it is the same.
_AGAIN_S: Final = 10.0


class ReachTrouble:
    """The reason why brokers cannot be reached, from `failed` until `succeeded`."""

    def __init__(
        self,
        bootstrap_servers: str,
        security: ConnectionSecurity,
        *,
        quiet: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """With `quiet` what may pass by itself, such as a refused connection, is not logged."""
        self._bootstrap_servers = bootstrap_servers
        self._security = security
        self._quiet = quiet
        self._now = now
        self._asked_at = -_AGAIN_S
        self._said_at = -_AGAIN_S
        self._kinds: dict[Broker, str] = {}
        #: The reason in a sentence, with what to do; None if there is none.
        self.reason: str | None = None
        #: The same, only if waiting does not help against it.
        self.kept_out: str | None = None

    def succeeded(self) -> None:
        """Note that a broker has answered."""
        self.reason = self.kept_out = None
        self._kinds = {}

    async def failed(self, failures: Mapping[Broker, Exception]) -> None:
        """Note errors of connections; may ask the brokers for some seconds."""
        kinds = {broker: repr(error) for broker, error in failures.items()}
        if kinds == self._kinds and self._now() - self._asked_at < _AGAIN_S:
            return
        explanation = await explain_all(self._bootstrap_servers, failures, self._security)
        self._kinds, self._asked_at = kinds, self._now()
        news = explanation.text != self.reason
        self.reason = explanation.text
        self.kept_out = explanation.text if explanation.certain else None
        if self._quiet and not explanation.certain:
            logger.debug("%s", explanation.text)
        elif news or self._asked_at - self._said_at >= _AGAIN_S:
            self._said_at = self._asked_at
            logger.warning("%s", explanation.text)
