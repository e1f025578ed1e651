"""The description of the interface against the interface."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.auth import Authenticator
from gateway.http import build_application
from gateway.metrics import GatewayMetrics
from gateway.openapi import openapi
from gateway.pipeline import GroupLag, Pipeline
from gateway.places import Places
from gateway.services import Services
from gateway.submit import Submitter
from gateway.users import UserStore
from gateway.viewers import Viewers
from gateway.views import AddressView, LocationView
from tests.gateway.records import MemoryLog, MemoryTelemetry


async def test_every_route_is_described_and_nothing_else(tmp_path: Path) -> None:
    store = UserStore(tmp_path / "users.db")
    metrics = GatewayMetrics()
    locations, addresses = LocationView(), AddressView()
    lag = GroupLag("127.0.0.1:1", "test", "resolver")
    authenticator = Authenticator(store)
    services = Services(
        submitter=Submitter(MemoryLog(), MemoryTelemetry(), asyncio.get_running_loop()),
        authenticator=authenticator,
        address_view=addresses,
        location_view=locations,
        viewers=Viewers((locations, addresses), metrics),
        metrics=metrics,
        pipeline=Pipeline(locations, addresses, metrics, lag),
        places=Places(None),
        bootstrap_servers="127.0.0.1:1",
    )
    application = build_application(services, "test")
    routes = {
        (resource.canonical, route.method.lower())
        for resource in application.router.resources()
        for route in resource
        if route.method != "HEAD"
    }
    described = {
        (path, method) for path, methods in openapi()["paths"].items() for method in methods
    }
    assert routes == described
    authenticator.close()
    store.close()


def test_every_reference_leads_somewhere() -> None:
    document = openapi()
    schemas = document["components"]["schemas"]

    def references(value: object) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [ref for each in value.values() for ref in references(each)]
        if isinstance(value, list):
            return [ref for each in value for ref in references(each)]
        return []

    found = references(document)
    assert found
    assert {ref.removeprefix("#/components/schemas/") for ref in found} <= schemas.keys()
