"""The description of the HTTP interface, OpenAPI 3.1. A test compares it with the routes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waylog.messages import Address, Fix

_SENDING: Final = "Sending"
_READING: Final = "Reading"
_GEOCODING: Final = "Geocoding"
_OPERATING: Final = "Operating"


def openapi() -> dict[str, Any]:
    """The whole document."""
    _, schemas = msgspec.json.schema_components(
        (Fix, Address), ref_template="#/components/schemas/{name}"
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Waylog gateway",
            "version": "1",
            "description": "A fix is acknowledged (200) when all in-sync replicas of the log have "
            "it. What can never be accepted is kept in topic `error` and answered with success; "
            "503 means: keep it and repeat.",
        },
        "paths": _paths(),
        "security": [{"basic": []}, {"bearer": []}, {"urlToken": []}],
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "urlToken": {"type": "apiKey", "in": "query", "name": "token"},
            },
            "schemas": {
                **schemas,
                "Error": {
                    "type": "object",
                    "properties": {"error": {"type": "string"}},
                    "required": ["error"],
                },
                "PositionsAnswer": {
                    "type": "object",
                    "required": ["accepted", "ids", "rejected"],
                    "properties": {
                        "accepted": {"type": "integer"},
                        "ids": {"type": "array", "items": {"type": "string"}},
                        "acked": {"type": "array", "items": {"type": "string"}},
                        "rejected": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "index": {"type": "integer"},
                                    "reason": {"type": "string"},
                                },
                            },
                        },
                    },
                },
            },
        },
    }


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = {
        "/v1/positions": {
            "post": _operation(
                _SENDING,
                "One fix, an array of them, or NDJSON",
                answer=_schema("PositionsAnswer"),
                body=True,
            )
        },
        "/v1/devices": {
            "get": _operation(
                _READING,
                "Devices with their newest fix and address; `Waylog-More-After` names the last "
                "one when there are more",
                query=("limit", "after"),
            )
        },
        "/v1/devices/{device}": {"get": _of_device("What is known of a device")},
        "/v1/devices/{device}/address": {
            "get": _of_device("Address of the newest fix", answer=_schema("Address"))
        },
        "/v1/devices/{device}/track": {
            "get": _of_device(
                "The way of a device: format geojson, gpx, kml or csv",
                query=("from", "to", "format"),
            )
        },
        "/v1/devices/{device}/places": {"get": _of_device("Favourite places")},
        "/v1/pipeline": {"get": _operation(_OPERATING, "Throughput and lag")},
        "/v1/stream": {
            "get": _operation(
                _READING,
                "Fixes and addresses as server-sent events; Last-Event-ID resumes",
                query=("since", "bbox", "device", "topics"),
                media_type="text/event-stream",
            )
        },
        "/v1/ws": {
            "get": _operation(
                _READING,
                "WebSocket: send fixes, receive acks, fixes and addresses",
                query=("since", "bbox", "device", "topics"),
                status="101",
            )
        },
        "/reverse": {
            "get": _operation(
                _GEOCODING, "Nominatim's reverse", query=("lat", "lon", "format", "zoom", "layer")
            )
        },
        "/reverse/batch": {"post": _operation(_GEOCODING, "Many at once", body=True)},
        "/status": {"get": _operation(_GEOCODING, "Nominatim's status")},
        "/metrics": {
            "get": _operation(_OPERATING, "For Prometheus", media_type="text/plain", public=True)
        },
        "/healthz": {"get": _operation(_OPERATING, "The process lives", public=True)},
        "/readyz": {"get": _operation(_OPERATING, "The views have caught up", public=True)},
        "/openapi.json": {"get": _operation(_OPERATING, "This document", public=True)},
        "/": {
            "get": _operation(
                _READING,
                "The live map; with `id` a fix in the OsmAnd protocol",
                query=("id", "lat", "lon", "timestamp"),
                media_type="text/html",
                public=True,
            ),
            "post": _operation(_SENDING, "Traccar Client", body=True),
        },
        "/static/{path}": {
            "get": _operation(
                _READING, "Files of the live map", path=("path",), media_type="*/*", public=True
            )
        },
        "/pub": {"post": _operation(_SENDING, "OwnTracks (as Recorder names it)", body=True)},
        "/api/webhook/{token}": {
            "post": _operation(
                _SENDING, "Home Assistant's companion app", body=True, path=("token",)
            )
        },
    }
    for name, title, methods in (
        ("owntracks", "OwnTracks' HTTP mode", ("post",)),
        ("overland", "Overland", ("post",)),
        ("osmand", "OsmAnd protocol", ("get", "post")),
        ("traccar", "Traccar Client", ("get", "post")),
        ("gpslogger", "GPSLogger", ("get", "post")),
        ("colota", "Colota", ("get", "post")),
    ):
        for path in (f"/{name}", f"/{name}/{{token}}", f"/in/{name}/{{token}}"):
            parameters = ("token",) if path.endswith("{token}") else ()
            paths[path] = {
                method: _operation(_SENDING, title, body=method == "post", path=parameters)
                for method in methods
            }
    return paths


def _schema(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _of_device(
    summary: str, *, query: tuple[str, ...] = (), answer: dict[str, Any] | None = None
) -> dict[str, Any]:
    return _operation(_READING, summary, path=("device",), query=query, answer=answer)


def _operation(
    tag: str,
    summary: str,
    *,
    body: bool = False,
    path: tuple[str, ...] = (),
    query: tuple[str, ...] = (),
    answer: dict[str, Any] | None = None,
    media_type: str = "application/json",
    status: str = "200",
    public: bool = False,
) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done"}
    if status == "200":
        good["content"] = {media_type: {"schema": answer or {}}}
    refusal = {"content": {"application/json": {"schema": _schema("Error")}}}
    operation: dict[str, Any] = {
        "tags": [tag],
        "summary": summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in path
        ]
        + [{"name": name, "in": "query", "schema": {"type": "string"}} for name in query],
        "responses": {
            status: good,
            "4XX": {"description": "Refused; the reason is in `error`", **refusal},
            "503": {"description": "Not now; repeat", **refusal},
        },
    }
    if body:
        operation["requestBody"] = {"content": {"*/*": {"schema": {}}}}
    if public:
        operation["security"] = []
    return operation
