"""The OpenAPI 3.1 description of the HTTP interface. A test compares it with the routes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.factors.passkeys import Passkey
from gateway.http.ingest import ulogger_sessions
from gateway.http.ingest.app_responses import nothing
from gateway.http.ingest.paths import PATHS
from gateway.http.openapi_administration import SCHEMAS, administration_paths
from gateway.http.openapi_operations import (
    FORWARDING,
    GEOCODING,
    LOG,
    OPERATING,
    READING,
    SENDING,
    ZONES,
    names_in,
    nominatim,
    of_device,
    operation,
    schema,
)
from gateway.http.openapi_own_data import own_data_paths
from gateway.http.openapi_people import people_paths
from gateway.http.routes.device_token_routes import NewDeviceToken
from gateway.http.routes.people.account_routes import OwnAccount
from gateway.http.routes.people.friend_routes import FriendRequestLists, Friends
from gateway.http.routes.people.share_routes import NewShare, OwnShare
from gateway.http.routes.people.shared_routes import SharedView
from gateway.http.routes.people.user_admin_routes import Invitation, KnownUser
from gateway.http.routes.receipts import DeviceReceipt
from gateway.tracks.battery import BatteryCourse
from gateway.tracks.track_formats import FORMATS
from gateway.users.app_setups import SETUPS
from waylog.messages import Address, Fix

#: Titles by format name.
_APPS: Final = {
    "owntracks": "OwnTracks' HTTP mode",
    "overland": "Overland",
    "osmand": "OsmAnd protocol",
    "traccar": "Traccar Client",
    "gpslogger": "GPSLogger",
    "colota": "Colota",
    "opengts": "OpenGTS",
    "phonetrack": "PhoneTrack",
    "home_assistant": "Home Assistant's companion app",
}


#: The paths of Kafka's REST proxy, version 2: title and status of success by path and method.
_INSTANCE: Final = "/consumers/{group}/instances/{instance}"
_LOG_PATHS: Final = {
    "/topics": {"get": ("Names of topics", "200")},
    "/topics/{topic}": {"get": ("One topic", "200"), "post": ("Append records", "200")},
    "/topics/{topic}/partitions": {"get": ("Partitions", "200")},
    "/topics/{topic}/partitions/{partition}": {
        "get": ("One partition", "200"),
        "post": ("Append records to it", "200"),
    },
    "/topics/{topic}/partitions/{partition}/offsets": {"get": ("First and next offset", "200")},
    "/brokers": {"get": ("Ids of brokers", "200")},
    "/consumers/{group}": {"post": ("A new consumer", "200")},
    _INSTANCE: {"delete": ("Close a consumer", "204")},
    f"{_INSTANCE}/subscription": {
        "post": ("Subscribe to topics", "204"),
        "get": ("What it has subscribed to", "200"),
        "delete": ("Unsubscribe", "204"),
    },
    f"{_INSTANCE}/assignments": {
        "post": ("Read these partitions", "204"),
        "get": ("What it reads", "200"),
    },
    f"{_INSTANCE}/positions": {"post": ("Go on from these offsets", "204")},
    f"{_INSTANCE}/positions/beginning": {"post": ("Go to the beginning", "204")},
    f"{_INSTANCE}/positions/end": {"post": ("Go to the end", "204")},
    f"{_INSTANCE}/records": {"get": ("The next records", "200")},
    f"{_INSTANCE}/offsets": {
        "post": ("Commit offsets", "200"),
        "get": ("Committed offsets", "200"),
    },
}


def openapi() -> dict[str, Any]:
    """Return the whole document."""
    _, schemas = msgspec.json.schema_components(
        (
            *(
                Fix,
                Address,
                BatteryCourse,
                DeviceReceipt,
                NewDeviceToken,
                OwnShare,
                NewShare,
                SharedView,
            ),
            *(OwnAccount, Passkey, Friends, FriendRequestLists, KnownUser, Invitation),
            *SCHEMAS,
        ),
        ref_template="#/components/schemas/{name}",
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
        "security": [{"basic": []}, {"bearer": []}, {"urlToken": []}, {"session": []}],
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "urlToken": {"type": "apiKey", "in": "query", "name": "token"},
                # The name ends in eight digits that differ between installations.
                "session": {"type": "apiKey", "in": "cookie", "name": "waylog-"},
            },
            "schemas": {
                **schemas,
                "Error": {
                    "type": "object",
                    "properties": {"error": {"type": "string"}, "code": {"type": "string"}},
                    "required": ["error"],
                },
                "GeocoderError": {
                    "type": "object",
                    "properties": {
                        "error": {
                            "type": "object",
                            "properties": {
                                "code": {"type": "integer"},
                                "message": {"type": "string"},
                            },
                            "required": ["code", "message"],
                        }
                    },
                    "required": ["error"],
                },
                "LogError": {
                    "type": "object",
                    "properties": {
                        "error_code": {"type": "integer"},
                        "message": {"type": "string"},
                    },
                    "required": ["error_code", "message"],
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
            "post": operation(
                SENDING,
                "One fix, an array of them, or NDJSON",
                answer=schema("PositionsAnswer"),
                body=True,
            )
        },
        "/v1/devices": {
            "get": operation(
                READING,
                "Devices with their newest fix and address; `Waylog-More-After` names the last "
                "one when there are more; `q` is a part of their names",
                query=("limit", "after", "q"),
            )
        },
        "/v1/devices/{device}": {"get": of_device("What is known of a device")},
        "/v1/devices/{device}/address": {
            "get": of_device("Address of the newest fix", answer=schema("Address"))
        },
        "/v1/devices/{device}/track": {
            "get": of_device(
                "The way of a device: format geojson, gpx, kml or csv",
                query=("from", "to", "format"),
                media_types=tuple(each.content_type for each in FORMATS.values()),
            )
        },
        "/v1/devices/{device}/places": {"get": of_device("Favourite places")},
        "/v1/devices/{device}/visits": {
            "get": of_device("Visits to places, by time", query=("from", "to"))
        },
        "/v1/devices/{device}/trips": {
            "get": of_device("Trips between places, by time", query=("from", "to"))
        },
        "/v1/devices/{device}/timeline": {
            "get": of_device(
                "What a device did, in at most 32 days: stays, trips with their simplified lines, "
                "and gaps of which nothing is known",
                query=("from", "to"),
            )
        },
        "/v1/devices/{device}/days": {
            "get": of_device(
                "The days with fixes, and how many; `tz` is their time zone",
                query=("from", "to", "tz"),
            )
        },
        "/v1/devices/{device}/statistics": {
            "get": of_device(
                "Distance, moving time and trips by day, week, month or year",
                query=("from", "to", "tz", "by"),
            )
        },
        "/v1/devices/{device}/battery": {
            "get": of_device(
                "The course of the battery in at most 32 days, thinned to what a chart shows",
                query=("from", "to"),
                answer=schema("BatteryCourse"),
            )
        },
        "/v1/devices/{device}/receipts": {
            "get": of_device(
                "Where the fixes of a day are: acknowledged, resolved, in the history, passed by "
                "each reader, sent on by each forwarding, refused; `day` is YYYY-MM-DD, today or "
                "yesterday, `tz` its time zone",
                query=("day", "tz"),
                answer=schema("DeviceReceipt"),
            )
        },
        "/v1/devices/{device}/notices": {
            "get": of_device("Of which events of the device the user wants to be told"),
            "put": operation(
                READING,
                'Choose them: {"kinds": ["enter", "leave", ...]}',
                path=("device",),
                body=True,
            ),
            "delete": operation(
                READING,
                "Choose the usual ones: all of the own devices, none of friends'",
                path=("device",),
                status="204",
            ),
        },
        "/v1/device-tokens": {
            "get": operation(READING, "The user's devices that have tokens of their own"),
            "post": operation(
                SENDING,
                'A new token for a device, and what sets up its app: {"name": .., "app": ..}, '
                f"app one of {', '.join(SETUPS)}",
                body=True,
                status="201",
                answer=schema("NewDeviceToken"),
            ),
        },
        "/v1/device-tokens/{name}": {
            "delete": operation(
                SENDING, "Revoke all tokens of a device", path=("name",), status="204"
            )
        },
        **people_paths(),
        "/service-worker.js": {
            "get": operation(
                READING,
                "What keeps the page for when there is no gateway, and shows notifications",
                media_types=("text/javascript",),
                public=True,
            )
        },
        "/v1/push/key": {
            "get": operation(READING, "The key for a browser's PushManager", public=True)
        },
        "/v1/push/subscriptions": {
            "post": operation(
                READING,
                "Notify a browser of arrivals and events (PushSubscription)",
                body=True,
                status="201",
            ),
            "delete": operation(READING, "No longer", body=True, status="204"),
        },
        "/v1/geofences": {
            "get": operation(ZONES, "One's own zones"),
            "post": operation(
                ZONES,
                "A new zone: name, geometry (GeoJSON: Point with radius, LineString with width, "
                "Polygon, MultiPolygon; metres), devices, alerts (enter, leave, dwell), dwell (s), "
                "minimum (s), channels, always",
                body=True,
                status="201",
            ),
        },
        "/v1/geofences/{geofence}": {
            "get": operation(ZONES, "One of one's own zones", path=("geofence",)),
            "put": operation(ZONES, "Another zone in its place", path=("geofence",), body=True),
            "delete": operation(ZONES, "Delete a zone", path=("geofence",), status="204"),
        },
        "/v1/events": {
            "get": operation(
                ZONES,
                "What has happened in zones in seven days, the newest last; with `after` (a cursor "
                "of an answer) only what is newer, and with `wait` (s) as soon as there is some",
                query=("after", "wait"),
            )
        },
        "/v1/alert-channels": {
            "get": operation(ZONES, "One's own servers that are told of events"),
            "post": operation(
                ZONES,
                "A new one: name, kind (webhook, apprise, ntfy, email), url, token, signing_secret",
                body=True,
                status="201",
            ),
        },
        "/v1/alert-channels/{channel}": {
            "put": operation(ZONES, "Another channel in its place", path=("channel",), body=True),
            "delete": operation(ZONES, "Delete a channel", path=("channel",), status="204"),
        },
        "/v1/alert-channels/{channel}/test": {
            "post": operation(ZONES, "Send a test now", path=("channel",))
        },
        "/v1/alert-channels/kinds": {"get": operation(ZONES, "The kinds that this platform has")},
        "/v1/alert-channels/{channel}/confirmation": {
            "post": operation(ZONES, "Send the code of a mailbox again", path=("channel",)),
            "put": operation(ZONES, 'Enter it: {"code": "12345678"}', path=("channel",), body=True),
        },
        "/v1/alert-settings": {
            "get": operation(ZONES, "Quiet hours, and the language of texts"),
            "put": operation(
                ZONES,
                'Set them: {"quiet": {"from": "22:00", "until": "07:00", "time_zone": '
                '"Europe/Vaduz"}, "language": "de"}',
                body=True,
            ),
        },
        "/v1/devices/{device}/place-edits": {
            "get": of_device("What one has said of the places of a device of one's own")
        },
        "/v1/devices/{device}/places/{place}": {
            "patch": operation(
                ZONES,
                "Say what a place is: name, label (home, work, none), merged_into (a place's id), "
                "deleted; null or false takes it back",
                path=("device", "place"),
                body=True,
            ),
            "delete": operation(ZONES, "Leave a place out", path=("device", "place"), status="204"),
        },
        "/v1/forwardings": {
            "get": operation(FORWARDING, "The user's forwardings, without secrets"),
            "post": operation(
                FORWARDING,
                "Have devices sent on to another server, from now on: name, kind, url, and what "
                "that server needs",
                body=True,
                status="201",
            ),
        },
        "/v1/forwardings/{forwarding}": {
            "get": operation(FORWARDING, "How one fares", path=("forwarding",)),
            "patch": operation(FORWARDING, "Change members of it", body=True, path=("forwarding",)),
            "delete": operation(FORWARDING, "End it", path=("forwarding",), status="204"),
        },
        "/v1/forwardings/{forwarding}/pause": {
            "post": operation(FORWARDING, "Send nothing for now", path=("forwarding",))
        },
        "/v1/forwardings/{forwarding}/resume": {
            "post": operation(
                FORWARDING,
                'Go on where it was paused, or with what comes from now on: {"skip": true}',
                body=True,
                path=("forwarding",),
            )
        },
        **own_data_paths(),
        "/v1/admin/forwardings": {
            "get": operation(
                OPERATING,
                "Forwardings of all users, for administrators: of whole users up to a thousand, "
                "and the `next` user to ask for with `after`",
                query=("user", "host", "after"),
            ),
            "delete": operation(
                OPERATING, "End all of a user, or all to a server", query=("user", "host")
            ),
        },
        "/v1/admin/forwardings/{user}/{forwarding}": {
            "delete": operation(
                OPERATING, "End one of a user", path=("user", "forwarding"), status="204"
            )
        },
        "/v1/admin/forwarding-pauses": {
            "get": operation(OPERATING, "What administrators have paused of forwardings"),
            "post": operation(
                OPERATING,
                "Pause all that fit: user, host or both, or forwarding of a user; and a reason, "
                "which owners are shown",
                body=True,
                status="201",
            ),
        },
        "/v1/admin/forwarding-pauses/{pause}": {
            "delete": operation(OPERATING, "Resume them", path=("pause",), status="204")
        },
        **administration_paths(),
        "/v1/pipeline": {"get": operation(OPERATING, "Throughput and lag, for administrators")},
        "/v1/session": {
            "get": operation(READING, "Who asks, and what it may do"),
            "post": operation(
                READING,
                'Sign a browser in: {"code": ..} of `waylog link`, or {"user": .., "token": ..}; '
                "the answer sets a cookie, which is good for looking",
                body=True,
                public=True,
            ),
            "delete": operation(READING, "Sign out", status="204", public=True),
        },
        "/v1/base-maps": {
            "get": operation(READING, "Base maps of other servers that the operator offers")
        },
        "/v1/entrances": {"get": operation(READING, "Where devices reach the platform")},
        "/v1/stream": {
            "get": operation(
                READING,
                "Fixes and addresses as server-sent events; Last-Event-ID resumes",
                query=("since", "bbox", "device", "topics"),
                media_types=("text/event-stream",),
            )
        },
        "/v1/ws": {
            "get": operation(
                READING,
                "WebSocket: send fixes, receive acks, fixes and addresses",
                query=("since", "bbox", "device", "topics"),
                status="101",
            )
        },
        "/mqtt": {"get": operation(SENDING, "MQTT over WebSocket, subprotocol mqtt", status="101")},
        "/reverse": {"get": nominatim("reverse", "lat", "lon", "format", "zoom", "layer")},
        "/search": {
            "get": nominatim("search", "q", "format", "limit", "countrycodes", "viewbox", "bounded")
        },
        "/lookup": {"get": nominatim("lookup", "osm_ids", "format")},
        "/reverse/batch": {
            "post": operation(GEOCODING, "Many at once", body=True, error="GeocoderError")
        },
        "/status": {"get": nominatim("status", "format")},
        "/metrics": {
            "get": operation(
                OPERATING,
                "For Prometheus: administrators and the token of the metrics "
                "(--metrics-access, --metrics-token-file)",
                media_types=("text/plain",),
            )
        },
        "/healthz": {"get": operation(OPERATING, "The process lives", public=True)},
        "/readyz": {"get": operation(OPERATING, "The views have caught up", public=True)},
        "/docs": {
            "get": operation(
                OPERATING, "This document as a page", media_types=("text/html",), public=True
            )
        },
        "/openapi.json": {"get": operation(OPERATING, "This document", public=True)},
        "/": {
            "get": operation(
                READING,
                "The live map; with `id` a fix in the OsmAnd protocol",
                query=("id", "lat", "lon", "timestamp"),
                # The map is HTML; the response to a fix is empty and has no type.
                media_types=(),
                public=True,
            ),
            "post": operation(SENDING, "Traccar Client", body=True),
        },
        "/tiles.json": {"get": operation(READING, "Which extracts the map has tiles of")},
        "/tiles/{archive}/{z}/{x}/{y}.mvt": {
            "get": operation(
                READING,
                "A vector tile of an extract (schema Shortbread); 204 where it is empty",
                path=("archive", "z", "x", "y"),
                media_types=("application/vnd.mapbox-vector-tile",),
            )
        },
        "/static/{path}": {
            "get": operation(
                READING, "Files of the live map", path=("path",), media_types=("*/*",), public=True
            )
        },
        "/api/mobile_app/registrations": {
            "post": operation(
                SENDING, "A webhook for Home Assistant's companion app", body=True, status="201"
            )
        },
    }
    for path, device_format in PATHS.items():
        if path not in paths:
            paths[path] = {
                method.lower(): operation(
                    SENDING,
                    _APPS[device_format.name],
                    body=method == "POST",
                    path=names_in(path),
                    media_types=() if device_format.answer is nothing else ("application/json",),
                )
                for method in device_format.methods
            }
    for path, methods in _LOG_PATHS.items():
        paths[path] = {
            method: operation(
                LOG,
                title,
                body=method == "post",
                path=names_in(path),
                status=status,
                media_types=_log_media_types(path, method),
                error="LogError",
            )
            for method, (title, status) in methods.items()
        }
    for path in ulogger_sessions.PATHS:
        paths[path] = {"post": operation(SENDING, "uLogger", body=True, path=names_in(path))}
    return paths


def _log_media_types(path: str, method: str) -> tuple[str, ...]:
    if path.endswith("/records"):
        return ("application/vnd.kafka.json.v2+json", "application/vnd.kafka.binary.v2+json")
    if path.endswith("/offsets") and method == "post":
        return ()
    return ("application/vnd.kafka.v2+json",)
