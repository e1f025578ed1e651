"""The properties `errors.*` of a connector, parsed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from consumers.connect.configuration.connector_properties import (
    COMMON_CONFIG,
    DEAD_LETTER_CONTEXT_HEADERS,
    DEAD_LETTER_REPLICATION_FACTOR,
    DEAD_LETTER_TOPIC,
    ERRORS_LOG_ENABLE,
    ERRORS_LOG_INCLUDE_MESSAGES,
    ERRORS_RETRY_DELAY_MAX_MS,
    ERRORS_RETRY_TIMEOUT,
    ERRORS_TOLERANCE,
    SINK_CONFIG,
)


class ErrorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a connector treats errors (KIP-298, KIP-610)."""

    tolerates_all: bool = False
    retry_timeout_ms: int = 0  # negative: for ever
    retry_delay_max_ms: int = 60_000
    logs: bool = False
    logs_records: bool = False
    dead_letter_topic: str = ""  # empty: none
    dead_letter_replication_factor: int = 3
    dead_letters_have_context: bool = False

    @staticmethod
    def of(properties: Mapping[str, Any], *, is_sink: bool) -> ErrorSettings:
        """Return what a connector's properties say; raises ConfigException."""
        parsed = (SINK_CONFIG if is_sink else COMMON_CONFIG).parse(properties)
        return ErrorSettings(
            tolerates_all=parsed[ERRORS_TOLERANCE] == "all",
            retry_timeout_ms=parsed[ERRORS_RETRY_TIMEOUT],
            retry_delay_max_ms=parsed[ERRORS_RETRY_DELAY_MAX_MS],
            logs=parsed[ERRORS_LOG_ENABLE],
            logs_records=parsed[ERRORS_LOG_INCLUDE_MESSAGES],
            dead_letter_topic=parsed.get(DEAD_LETTER_TOPIC, "").strip(),
            dead_letter_replication_factor=parsed.get(DEAD_LETTER_REPLICATION_FACTOR, 3),
            dead_letters_have_context=parsed.get(DEAD_LETTER_CONTEXT_HEADERS, False),
        )
