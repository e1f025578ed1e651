from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

class Delivery:
    """A cheap delivery callback, called when the log has answered a record."""

class RecordProducer:
    """A producer that takes records in batches and reports the outcome of each."""

    acknowledged: int

    def __init__(
        self, properties: Mapping[str, object], on_error: Callable[[int, str], None]
    ) -> None: ...
    def __len__(self) -> int: ...
    def take(self, gathered: deque[Any]) -> None: ...
    def poll(self) -> None: ...
    def fatal(self) -> str | None: ...
