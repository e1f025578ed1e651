"""Where in a task a record has failed."""

from __future__ import annotations

import enum


class Stage(enum.Enum):
    """A step of a task, by the names that logs and dead letters of Kafka Connect use."""

    TASK_POLL = "TASK_POLL"
    TASK_PUT = "TASK_PUT"
    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"
    KAFKA_CONSUME = "KAFKA_CONSUME"

    @property
    def tolerates_any_error(self) -> bool:
        """Tell whether any exception may be tolerated, not only what a repetition may cure."""
        return self in (
            Stage.TRANSFORMATION,
            Stage.KEY_CONVERTER,
            Stage.VALUE_CONVERTER,
            Stage.HEADER_CONVERTER,
        )
