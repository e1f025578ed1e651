from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

class Delivery:
    """Told when the log has answered a record: a callback without the cost of one."""

class RecordProducer:
    """Takes records and says how each fared."""

    acknowledged: int

    def __init__(
        self, properties: Mapping[str, object], on_error: Callable[[int, str], None]
    ) -> None: ...
    def __len__(self) -> int: ...
    def take(self, gathered: deque[Any]) -> None: ...
    def poll(self) -> None: ...
    def fatal(self) -> str | None: ...
