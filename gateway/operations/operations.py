"""The parts behind the pages of administrators, put together."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.observability.metrics import GatewayMetrics
from gateway.observability.readiness import Readiness
from gateway.operations.log_console import LogConsole
from gateway.operations.overview import Overview
from gateway.operations.record_browser import RecordBrowser
from gateway.operations.record_values import ValueReader
from gateway.operations.refused import RefusedRecords
from gateway.views.address_view import AddressView
from gateway.views.location_view import LocationView
from waylog.observability.recent_lines import RecentLines


class Operations:
    """What administrators may see of the log and change of it, and how the platform does."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        locations: LocationView,
        addresses: AddressView,
        metrics: GatewayMetrics,
        readiness: Readiness,
        *,
        geo_url: str | None = None,
        history: str | None = None,
        schema_registry: Mapping[str, str] | None = None,
        recent_lines: RecentLines | None = None,
    ) -> None:
        """`schema_registry` has the properties of a registry, whose schemas decode values."""
        values = self._values = ValueReader(schema_registry)
        self.console = LogConsole(bootstrap_servers, client_id)
        self.records = RecordBrowser(self.console.access, values)
        self.refused = RefusedRecords(self.console.access, values)
        self.overview = Overview(
            self.console, locations, addresses, metrics, readiness, geo_url, history
        )
        self.recent_lines = recent_lines or RecentLines()

    async def close(self) -> None:
        """Ask nothing more."""
        await self.console.close()
        self._values.close()
