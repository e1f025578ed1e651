"""The OpenAPI description matches the routes."""

from __future__ import annotations

from pathlib import Path

from gateway.http.listener import build_application
from gateway.http.openapi import openapi
from tests.gateway.parts import parts


async def test_every_route_is_described_and_nothing_else(tmp_path: Path) -> None:
    async with parts(tmp_path) as services:
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
    # A path with a slash at its end is the one without, and not described once more.
    routes = {
        (path[:-1] if (path[:-1], method) in described else path, method) for path, method in routes
    }
    assert routes == described


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
