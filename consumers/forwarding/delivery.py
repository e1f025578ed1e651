"""What became of records that were sent for a forwarding, whatever the server is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from consumers.connect.data.records import SinkRecord
from consumers.connect.http.delivery import Refusal
from consumers.forwarding.route import Route
from consumers.forwarding.schedule import Failure


class Result(NamedTuple):
    """What became of records; those that are in neither list are sent again."""

    done: Sequence[SinkRecord] = ()  # refused ones among them
    refused: Sequence[Refusal] = ()
    failure: Failure | None = None


class Delivery(Protocol):
    """Sends records of forwardings of some kinds."""

    async def deliver(self, route: Route, records: Sequence[SinkRecord]) -> Result:
        """Send records of one forwarding, each once at most; what goes wrong is in the result."""

    async def close(self) -> None:
        """Close all connections."""
