"""Messages that cannot be made or sent: each is left out, so that its readers get the others."""

from __future__ import annotations

import logging
import time
from typing import Final

from waylog.process.log_throttle import LogThrottle, since_last_line

logger = logging.getLogger(__name__)

_NAME_CHARACTERS_MAX: Final = 200


class LeftOut:
    """Logs what is left out: whoever has retained it, others would be cut off by it for ever."""

    def __init__(self) -> None:
        self._said = LogThrottle()

    def tell(self, topic: str, error: Exception) -> None:
        """Take note of an exception about one message, whose topic or filter this is."""
        unsaid = self._said.count(time.monotonic())
        if unsaid is not None:
            logger.error(
                "a message of %.*r is left out, the others are delivered%s",
                *(_NAME_CHARACTERS_MAX, topic),
                since_last_line(unsaid),
                exc_info=error,
            )
