"""The OpenAPI 3.1 description of the HTTP interface. A test compares it with the routes."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from gateway.factors.passkeys import Passkey
from gateway.http.ingest import ulogger_sessions
from gateway.http.ingest.app_responses import nothing
from gateway.http.ingest.paths import PATHS
from gateway.http.routes.device_token_routes import NewDeviceToken
from gateway.http.routes.people.account_routes import OwnAccount
from gateway.http.routes.people.friend_routes import Friends
from gateway.http.routes.people.share_routes import NewShare, OwnShare
from gateway.http.routes.people.shared_routes import SharedView
from gateway.http.routes.people.user_admin_routes import Invitation, KnownUser
from gateway.http.routes.receipts import DeviceReceipt
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

_SENDING: Final = "Sending"
_READING: Final = "Reading"
_GEOCODING: Final = "Geocoding"
_SHARING: Final = "Sharing"
_ACCOUNT: Final = "Accounts"
_FORWARDING: Final = "Forwarding"
_ZONES: Final = "Places and zones"
_OPERATING: Final = "Operating"
_LOG: Final = "The log (administrators)"


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
            *(Fix, Address, DeviceReceipt, NewDeviceToken, OwnShare, NewShare, SharedView),
            *(OwnAccount, Passkey, Friends, KnownUser, Invitation),
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
                    "properties": {"error": {"type": "string"}},
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
                "one when there are more; `q` is a part of their names",
                query=("limit", "after", "q"),
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
                media_types=tuple(each.content_type for each in FORMATS.values()),
            )
        },
        "/v1/devices/{device}/places": {"get": _of_device("Favourite places")},
        "/v1/devices/{device}/visits": {
            "get": _of_device("Visits to places, by time", query=("from", "to"))
        },
        "/v1/devices/{device}/trips": {
            "get": _of_device("Trips between places, by time", query=("from", "to"))
        },
        "/v1/devices/{device}/timeline": {
            "get": _of_device(
                "What a device did, in at most 32 days: stays, trips with their simplified lines, "
                "and gaps of which nothing is known",
                query=("from", "to"),
            )
        },
        "/v1/devices/{device}/days": {
            "get": _of_device(
                "The days with fixes, and how many; `tz` is their time zone",
                query=("from", "to", "tz"),
            )
        },
        "/v1/devices/{device}/statistics": {
            "get": _of_device(
                "Distance, moving time and trips by day, week, month or year",
                query=("from", "to", "tz", "by"),
            )
        },
        "/v1/devices/{device}/receipts": {
            "get": _of_device(
                "Where the fixes of a day are: acknowledged, resolved, in the history, passed by "
                "each reader, sent on by each forwarding, refused; `day` is YYYY-MM-DD, today or "
                "yesterday, `tz` its time zone",
                query=("day", "tz"),
                answer=_schema("DeviceReceipt"),
            )
        },
        "/v1/devices/{device}/notices": {
            "get": _of_device("Of which events of the device the user wants to be told"),
            "put": _operation(
                _READING,
                'Choose them: {"kinds": ["enter", "leave", ...]}',
                path=("device",),
                body=True,
            ),
            "delete": _operation(
                _READING,
                "Choose the usual ones: all of the own devices, none of friends'",
                path=("device",),
                status="204",
            ),
        },
        "/v1/device-tokens": {
            "get": _operation(_READING, "The user's devices that have tokens of their own"),
            "post": _operation(
                _SENDING,
                'A new token for a device, and what sets up its app: {"name": .., "app": ..}, '
                f"app one of {', '.join(SETUPS)}",
                body=True,
                status="201",
                answer=_schema("NewDeviceToken"),
            ),
        },
        "/v1/device-tokens/{name}": {
            "delete": _operation(
                _SENDING, "Revoke all tokens of a device", path=("name",), status="204"
            )
        },
        "/v1/account": {
            "get": _operation(
                _ACCOUNT,
                "What the user signs in with, and where the user is signed in",
                answer=_schema("OwnAccount"),
            )
        },
        "/v1/account/password": {
            "put": _operation(
                _ACCOUNT,
                'Set a password, and end all other sessions: {"new": .., "password": ..}, the '
                "present one unless the session has just begun",
                body=True,
                status="204",
            )
        },
        "/v1/account/sessions": {
            "delete": _operation(_ACCOUNT, "Sign out everywhere else", status="204")
        },
        "/v1/account/sessions/{session}": {
            "delete": _operation(_ACCOUNT, "End a session", path=("session",), status="204")
        },
        "/v1/account/second-factor": {
            "post": _operation(
                _ACCOUNT, "A secret for an app that makes codes", body=True, status="201"
            ),
            "put": _operation(
                _ACCOUNT, "Turn it on by a code; the answer has recovery codes", body=True
            ),
            "delete": _operation(_ACCOUNT, "Turn it off", body=True, status="204"),
        },
        "/v1/account/passkeys/options": {
            "post": _operation(_ACCOUNT, "What a browser makes a passkey of", body=True)
        },
        "/v1/account/passkeys": {
            "post": _operation(
                _ACCOUNT,
                'Keep the passkey that was made: {"name": .., "passkey": ..}',
                body=True,
                status="201",
                answer=_schema("Passkey"),
            )
        },
        "/v1/account/passkeys/{passkey}": {
            "delete": _operation(
                _ACCOUNT,
                "Remove a passkey, and end the sessions that it began",
                path=("passkey",),
                status="204",
            )
        },
        "/v1/session/passkey-options": {
            "post": _operation(_ACCOUNT, "What a browser signs in with a passkey with", public=True)
        },
        "/v1/admin/users": {
            "get": _operation(
                _OPERATING,
                "All users (administrators)",
                answer={"type": "array", "items": _schema("KnownUser")},
            ),
            "post": _operation(
                _OPERATING,
                'Add a user, and a link that signs in once: {"name": .., "admin": false}',
                body=True,
                status="201",
                answer=_schema("Invitation"),
            ),
        },
        "/v1/admin/users/{user}": {
            "patch": _operation(
                _OPERATING,
                "Set admin, may_send, fixes_per_minute, devices_max",
                body=True,
                path=("user",),
                status="204",
            ),
            "delete": _operation(_OPERATING, "Revoke a user", path=("user",), status="204"),
        },
        "/v1/admin/users/{user}/invitation": {
            "post": _operation(
                _OPERATING,
                "Another link that signs a user in",
                path=("user",),
                status="201",
                answer=_schema("Invitation"),
            )
        },
        "/v1/friends": {
            "get": _operation(
                _SHARING,
                "Who sees the user's devices, and whose the user sees",
                answer=_schema("Friends"),
            )
        },
        "/v1/friends/{user}": {
            "put": _operation(
                _SHARING, "Let a user see one's devices from now on", path=("user",), status="204"
            ),
            "delete": _operation(_SHARING, "No longer", path=("user",), status="204"),
        },
        "/v1/friends/{user}/sight": {
            "delete": _operation(
                _SHARING, "No longer see a user's devices", path=("user",), status="204"
            )
        },
        "/v1/shares": {
            "get": _operation(
                _SHARING,
                "The user's shares that are valid",
                answer={"type": "array", "items": _schema("OwnShare")},
            ),
            "post": _operation(
                _SHARING,
                "A link that shows devices to whoever has it: devices, until, and name, from and "
                "to (a period that has passed; without them live), precision, metres, hides_home",
                body=True,
                status="201",
                answer=_schema("NewShare"),
            ),
        },
        "/v1/shares/{share}": {
            "delete": _operation(_SHARING, "End a share at once", path=("share",), status="204")
        },
        "/v1/shared": {
            "get": _operation(
                _SHARING,
                "Who shares what, by the token in header Waylog-Share",
                public=True,
                answer=_schema("SharedView"),
            )
        },
        "/v1/shared/track": {
            "get": _operation(_SHARING, "The track of a device of a shared period", public=True)
        },
        "/v1/shared/stream": {
            "get": _operation(_SHARING, "News of a live share (server-sent events)", public=True)
        },
        "/share": {
            "get": _operation(_SHARING, "The page that shows a share, /share#TOKEN", public=True)
        },
        "/v1/push/key": {
            "get": _operation(_READING, "The key for a browser's PushManager", public=True)
        },
        "/v1/push/subscriptions": {
            "post": _operation(
                _READING,
                "Notify a browser of arrivals and events (PushSubscription)",
                body=True,
                status="201",
            ),
            "delete": _operation(_READING, "No longer", body=True, status="204"),
        },
        "/v1/geofences": {
            "get": _operation(_ZONES, "One's own zones"),
            "post": _operation(
                _ZONES,
                "A new zone: name, geometry (GeoJSON: Point with radius, LineString with width, "
                "Polygon, MultiPolygon; metres), devices, alerts (enter, leave, dwell), dwell (s), "
                "minimum (s), channels, always",
                body=True,
                status="201",
            ),
        },
        "/v1/geofences/{geofence}": {
            "get": _operation(_ZONES, "One of one's own zones", path=("geofence",)),
            "put": _operation(_ZONES, "Another zone in its place", path=("geofence",), body=True),
            "delete": _operation(_ZONES, "Delete a zone", path=("geofence",), status="204"),
        },
        "/v1/events": {
            "get": _operation(
                _ZONES,
                "What has happened in zones in seven days, the newest last; with `after` (a cursor "
                "of an answer) only what is newer, and with `wait` (s) as soon as there is some",
                query=("after", "wait"),
            )
        },
        "/v1/alert-channels": {
            "get": _operation(_ZONES, "One's own servers that are told of events"),
            "post": _operation(
                _ZONES,
                "A new one: name, kind (webhook, apprise, ntfy), url, token, signing_secret",
                body=True,
                status="201",
            ),
        },
        "/v1/alert-channels/{channel}": {
            "put": _operation(_ZONES, "Another channel in its place", path=("channel",), body=True),
            "delete": _operation(_ZONES, "Delete a channel", path=("channel",), status="204"),
        },
        "/v1/alert-channels/{channel}/test": {
            "post": _operation(_ZONES, "Send a test now", path=("channel",))
        },
        "/v1/alert-settings": {
            "get": _operation(_ZONES, "Quiet hours, and the language of texts"),
            "put": _operation(
                _ZONES,
                'Set them: {"quiet": {"from": "22:00", "until": "07:00", "time_zone": '
                '"Europe/Vaduz"}, "language": "de"}',
                body=True,
            ),
        },
        "/v1/devices/{device}/place-edits": {
            "get": _of_device("What one has said of the places of a device of one's own")
        },
        "/v1/devices/{device}/places/{place}": {
            "patch": _operation(
                _ZONES,
                "Say what a place is: name, label (home, work, none), merged_into (a place's id), "
                "deleted; null or false takes it back",
                path=("device", "place"),
                body=True,
            ),
            "delete": _operation(
                _ZONES, "Leave a place out", path=("device", "place"), status="204"
            ),
        },
        "/v1/forwardings": {
            "get": _operation(_FORWARDING, "The user's forwardings, without secrets"),
            "post": _operation(
                _FORWARDING,
                "Have devices sent on to another server, from now on: name, kind, url, and what "
                "that server needs",
                body=True,
                status="201",
            ),
        },
        "/v1/forwardings/{forwarding}": {
            "get": _operation(_FORWARDING, "How one fares", path=("forwarding",)),
            "patch": _operation(
                _FORWARDING, "Change members of it", body=True, path=("forwarding",)
            ),
            "delete": _operation(_FORWARDING, "End it", path=("forwarding",), status="204"),
        },
        "/v1/forwardings/{forwarding}/pause": {
            "post": _operation(_FORWARDING, "Send nothing for now", path=("forwarding",))
        },
        "/v1/forwardings/{forwarding}/resume": {
            "post": _operation(
                _FORWARDING,
                'Go on where it was paused, or with what comes from now on: {"skip": true}',
                body=True,
                path=("forwarding",),
            )
        },
        "/v1/admin/forwardings": {
            "get": _operation(
                _OPERATING,
                "Forwardings of all users, for administrators: of whole users up to a thousand, "
                "and the `next` user to ask for with `after`",
                query=("user", "host", "after"),
            ),
            "delete": _operation(
                _OPERATING, "End all of a user, or all to a server", query=("user", "host")
            ),
        },
        "/v1/admin/forwardings/{user}/{forwarding}": {
            "delete": _operation(
                _OPERATING, "End one of a user", path=("user", "forwarding"), status="204"
            )
        },
        "/v1/admin/forwarding-pauses": {
            "get": _operation(_OPERATING, "What administrators have paused of forwardings"),
            "post": _operation(
                _OPERATING,
                "Pause all that fit: user, host or both, or forwarding of a user; and a reason, "
                "which owners are shown",
                body=True,
                status="201",
            ),
        },
        "/v1/admin/forwarding-pauses/{pause}": {
            "delete": _operation(_OPERATING, "Resume them", path=("pause",), status="204")
        },
        "/v1/pipeline": {"get": _operation(_OPERATING, "Throughput and lag, for administrators")},
        "/v1/session": {
            "get": _operation(_READING, "Who asks, and what it may do"),
            "post": _operation(
                _READING,
                'Sign a browser in: {"code": ..} of `waylog link`, or {"user": .., "token": ..}; '
                "the answer sets a cookie, which is good for looking",
                body=True,
                public=True,
            ),
            "delete": _operation(_READING, "Sign out", status="204", public=True),
        },
        "/v1/entrances": {"get": _operation(_READING, "Where devices reach the platform")},
        "/v1/stream": {
            "get": _operation(
                _READING,
                "Fixes and addresses as server-sent events; Last-Event-ID resumes",
                query=("since", "bbox", "device", "topics"),
                media_types=("text/event-stream",),
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
        "/mqtt": {
            "get": _operation(_SENDING, "MQTT over WebSocket, subprotocol mqtt", status="101")
        },
        "/reverse": {"get": _nominatim("reverse", "lat", "lon", "format", "zoom", "layer")},
        "/search": {
            "get": _nominatim(
                "search", "q", "format", "limit", "countrycodes", "viewbox", "bounded"
            )
        },
        "/lookup": {"get": _nominatim("lookup", "osm_ids", "format")},
        "/reverse/batch": {
            "post": _operation(_GEOCODING, "Many at once", body=True, error="GeocoderError")
        },
        "/status": {"get": _nominatim("status", "format")},
        "/metrics": {
            "get": _operation(
                _OPERATING,
                "For Prometheus: administrators and the token of the metrics "
                "(--metrics-access, --metrics-token-file)",
                media_types=("text/plain",),
            )
        },
        "/healthz": {"get": _operation(_OPERATING, "The process lives", public=True)},
        "/readyz": {"get": _operation(_OPERATING, "The views have caught up", public=True)},
        "/openapi.json": {"get": _operation(_OPERATING, "This document", public=True)},
        "/": {
            "get": _operation(
                _READING,
                "The live map; with `id` a fix in the OsmAnd protocol",
                query=("id", "lat", "lon", "timestamp"),
                # The map is HTML; the response to a fix is empty and has no type.
                media_types=(),
                public=True,
            ),
            "post": _operation(_SENDING, "Traccar Client", body=True),
        },
        "/tiles.json": {"get": _operation(_READING, "Which extracts the map has tiles of")},
        "/tiles/{archive}/{z}/{x}/{y}.mvt": {
            "get": _operation(
                _READING,
                "A vector tile of an extract (schema Shortbread); 204 where it is empty",
                path=("archive", "z", "x", "y"),
                media_types=("application/vnd.mapbox-vector-tile",),
            )
        },
        "/static/{path}": {
            "get": _operation(
                _READING, "Files of the live map", path=("path",), media_types=("*/*",), public=True
            )
        },
        "/api/mobile_app/registrations": {
            "post": _operation(
                _SENDING, "A webhook for Home Assistant's companion app", body=True, status="201"
            )
        },
    }
    for path, device_format in PATHS.items():
        if path not in paths:
            paths[path] = {
                method.lower(): _operation(
                    _SENDING,
                    _APPS[device_format.name],
                    body=method == "POST",
                    path=_names_in(path),
                    media_types=() if device_format.answer is nothing else ("application/json",),
                )
                for method in device_format.methods
            }
    for path, methods in _LOG_PATHS.items():
        paths[path] = {
            method: _operation(
                _LOG,
                title,
                body=method == "post",
                path=_names_in(path),
                status=status,
                media_types=_log_media_types(path, method),
                error="LogError",
            )
            for method, (title, status) in methods.items()
        }
    for path in ulogger_sessions.PATHS:
        paths[path] = {"post": _operation(_SENDING, "uLogger", body=True, path=_names_in(path))}
    return paths


def _log_media_types(path: str, method: str) -> tuple[str, ...]:
    if path.endswith("/records"):
        return ("application/vnd.kafka.json.v2+json", "application/vnd.kafka.binary.v2+json")
    if path.endswith("/offsets") and method == "post":
        return ()
    return ("application/vnd.kafka.v2+json",)


def _names_in(path: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\{(\w+)\}", path))


def _schema(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _of_device(
    summary: str,
    *,
    query: tuple[str, ...] = (),
    answer: dict[str, Any] | None = None,
    media_types: tuple[str, ...] = ("application/json",),
) -> dict[str, Any]:
    return _operation(
        _READING, summary, path=("device",), query=query, answer=answer, media_types=media_types
    )


def _nominatim(name: str, *query: str) -> dict[str, Any]:
    """Describe a Nominatim endpoint. Its responses, errors too, have the requested format."""
    others: tuple[str, ...] = ("text/xml", "text/plain")
    return _operation(
        _GEOCODING,
        f"Nominatim's {name}",
        query=query,
        media_types=("application/json", *others),
        error="GeocoderError",
        refusal_types=others,
    )


def _operation(
    tag: str,
    summary: str,
    *,
    body: bool = False,
    path: tuple[str, ...] = (),
    query: tuple[str, ...] = (),
    answer: dict[str, Any] | None = None,
    media_types: tuple[str, ...] = ("application/json",),
    status: str = "200",
    public: bool = False,
    error: str = "Error",
    refusal_types: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Describe an operation.

    `media_types` are those of success, none for an empty body; `refusal_types` are those of errors
    beside JSON.
    """
    good: dict[str, Any] = {"description": "Done"}
    if status in ("200", "201") and media_types:
        good["content"] = {each: {"schema": answer or {}} for each in media_types}
    refused = [_schema(each) for each in dict.fromkeys(("Error", error))]
    schema = refused[0] if len(refused) == 1 else {"anyOf": refused}
    refusal: dict[str, Any] = {"content": {"application/json": {"schema": schema}}}
    refusal["content"] |= {each: {} for each in refusal_types}
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
            "5XX": {"description": "Not now; repeat", **refusal},
        },
    }
    if body:
        operation["requestBody"] = {"content": {"*/*": {"schema": {}}}}
    if public:
        operation["security"] = []
    return operation
