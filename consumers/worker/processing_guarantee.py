"""The names of how often a result is written, as Kafka Streams' `processing.guarantee` has them."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

ProcessingGuarantee: TypeAlias = Literal["at_least_once", "exactly_once_v2"]

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE: Final = "exactly_once_v2"
PROCESSING_GUARANTEES: Final = (AT_LEAST_ONCE, EXACTLY_ONCE)
