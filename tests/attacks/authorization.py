"""The authorisation matrix: every way in and out, and what each kind of person gets there.

`python -m tests.attacks.authorization > docs/authorization.md` writes it for people;
test_authorization_matrix.py asks a running gateway, and finds routes that have no row.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.http.ingest import ulogger_sessions
from gateway.http.ingest.paths import PATHS

#: Kinds of persons who ask. All questions are about the devices of `owner`.
WHO: Final = {
    "nobody": "no credentials, on this machine",
    "proxied": "no credentials, through a proxy on this machine that adds no header",
    "owner": "the user whose devices these are",
    "session": "the owner's browser, signed in (a cookie)",
    "token": "a token of the owner's one device `phone`",
    "friend": "a user to whom the owner shows its devices",
    "former": "a friend no longer",
    "other": "another user",
    "looker": "a user that may look and not send (--look-only)",
    "admin": "an administrator",
}

#: Verdicts. The numbers are HTTP status codes.
YES: Final = "yes"
NO: Final = "no"
HIDDEN: Final = "-"
UNKNOWN: Final = "401"
REFUSED: Final = "403"

Verdicts = dict[str, str]


def verdicts(everybody: str, **others: str) -> Verdicts:
    """Return a row with one verdict for all but those named; `nobodies` are the first two."""
    nobodies = others.pop("nobodies", everybody)
    row = dict.fromkeys(WHO, everybody)
    row |= {"nobody": nobodies, "proxied": nobodies}
    return row | others


class Row(NamedTuple):
    """One line of the matrix."""

    title: str
    expected: Verdicts
    #: The request for each route: the body of a POST, and additions to the query.
    body: bytes | None = None
    query: str = ""


class Rows(NamedTuple):
    """Routes (method and path as aiohttp writes it) with the same verdicts."""

    row: Row
    routes: tuple[tuple[str, str], ...]


_FIX: Final = b'{"device":"phone","lat":47.1,"lon":9.5}'
_ANYBODY: Final = verdicts(YES)
_USERS: Final = verdicts(YES, nobodies=UNKNOWN)
_SENDS: Final = verdicts(YES, nobodies=UNKNOWN, session=UNKNOWN, looker=REFUSED)
_SEES: Final = verdicts(YES, nobodies=UNKNOWN, former=REFUSED, other=REFUSED, looker=REFUSED)
_ADMIN: Final = verdicts(REFUSED, nobodies=UNKNOWN, session=UNKNOWN, admin=YES)
_FORWARDING: Final = "/v1/forwardings/{forwarding}"
_IMPORT: Final = "/v1/imports/{import}"
_ZONE: Final = "/v1/geofences/{geofence}"
_CHANNEL: Final = "/v1/alert-channels/{channel}"
_ADMIN_TOPIC_PATH: Final = "/v1/admin/topics/{topic}"
_CONSUMER: Final = "/consumers/{group}/instances/{instance}"


def _get(*paths: str) -> tuple[tuple[str, str], ...]:
    return tuple(("GET", path) for path in paths)


def _post(*paths: str) -> tuple[tuple[str, str], ...]:
    return tuple(("POST", path) for path in paths)


def _receiving() -> tuple[tuple[str, str], ...]:
    """Return the routes that accept fixes; a token in the path identifies the person."""
    return tuple(
        (method, path)
        for path, device_format in PATHS.items()
        for method in device_format.methods
        if path != "/api/webhook/{token}"
    )


HTTP: Final = (
    Rows(
        Row("The page, its files, probes and the schema", _ANYBODY),
        _get(
            *("/", "/share", "/docs", "/static/{path}", "/service-worker.js"),
            *("/healthz", "/readyz", "/openapi.json"),
        ),
    ),
    Rows(Row("Send fixes (all formats of the apps)", _SENDS, _FIX, "lat=1&lon=2"), _receiving()),
    Rows(
        Row(
            "Send fixes by Home Assistant's webhook, which is a token",
            _SENDS | {"nobody": "410", "proxied": "410", "session": "410"},
            b'{"type":"update_location","data":{"gps":[1,2],"gps_accuracy":3}}',
        ),
        _post("/api/webhook/{token}"),
    ),
    Rows(
        Row("Send fixes by uLogger", _SENDS, b"action=addpos&lat=1&lon=2&time=1780000000"),
        _post(*ulogger_sessions.PATHS),
    ),
    Rows(
        Row("What is known of the device, and its address", _SEES),
        _get("/v1/devices/{device}", "/v1/devices/{device}/address"),
    ),
    Rows(
        Row("Where the device was: track, places, visits, trips", _SEES),
        _get(
            *("/v1/devices/{device}/track", "/v1/devices/{device}/places"),
            *("/v1/devices/{device}/visits", "/v1/devices/{device}/trips"),
        ),
    ),
    Rows(
        Row("The diary of the device: timeline, days, statistics", _SEES, query="from=0&to=1"),
        _get(
            *("/v1/devices/{device}/timeline", "/v1/devices/{device}/days"),
            "/v1/devices/{device}/statistics",
        ),
    ),
    Rows(
        Row(
            "The course of the device's battery",
            _SEES | {"friend": REFUSED},
            query="from=0&to=1",
        ),
        _get("/v1/devices/{device}/battery"),
    ),
    Rows(
        Row("Where the fixes of the device are: receipts", _SEES | {"friend": REFUSED}),
        _get("/v1/devices/{device}/receipts"),
    ),
    Rows(
        Row("Lists, live streams and who one is (what is in them: see below)", _USERS),
        _get(
            "/v1/devices", "/v1/stream", "/v1/ws", "/v1/session", "/v1/entrances", "/v1/base-maps"
        ),
    ),
    Rows(
        Row("Ask the geocoder", _USERS, b"[]", "lat=1&lon=2&q=x"),
        (
            *_get("/reverse", "/search", "/lookup", "/status"),
            *_get("/tiles.json", "/tiles/{archive}/{z}/{x}/{y}.mvt"),
            *_post("/reverse/batch"),
        ),
    ),
    Rows(
        Row("How the platform does (--metrics-access admin)", _ADMIN | {"session": REFUSED}),
        _get("/metrics", "/v1/pipeline"),
    ),
    Rows(
        Row("Sign a browser in, with a code or token that is not good", verdicts(UNKNOWN), b"{}"),
        _post("/v1/session"),
    ),
    Rows(
        Row("What a browser signs in with a passkey with", verdicts(REFUSED, session=YES), b"{}"),
        _post("/v1/session/passkey-options"),
    ),
    Rows(
        Row(
            "One's own account, by a browser that is signed in alone",
            verdicts(UNKNOWN, session=YES),
            b"{}",
        ),
        (
            *_get("/v1/account"),
            ("PUT", "/v1/account/password"),
            *(("DELETE", f"/v1/account/sessions{each}") for each in ("", "/{session}")),
            *((method, "/v1/account/second-factor") for method in ("POST", "PUT", "DELETE")),
            *_post("/v1/account/passkeys", "/v1/account/passkeys/options"),
            ("DELETE", "/v1/account/passkeys/{passkey}"),
        ),
    ),
    Rows(Row("Sign out", _ANYBODY), (("DELETE", "/v1/session"),)),
    Rows(Row("The key of notifications", _ANYBODY), _get("/v1/push/key")),
    Rows(
        Row(
            "Notifications of one's own arrivals, to this browser",
            _USERS | {"token": REFUSED},
            b"{}",
        ),
        (*_post("/v1/push/subscriptions"), ("DELETE", "/v1/push/subscriptions")),
    ),
    Rows(
        Row(
            "Of which events of the device the asker is told, as the asker has chosen",
            _SEES | {"token": REFUSED, "admin": REFUSED},
            b'{"kinds":["enter"]}',
        ),
        tuple((method, "/v1/devices/{device}/notices") for method in ("GET", "PUT", "DELETE")),
    ),
    Rows(
        Row(
            "Tokens of one's own devices: see, make, revoke",
            _USERS | {"token": REFUSED},
            b'{"name":"tablet","app":"owntracks_http"}',
        ),
        (
            *_get("/v1/device-tokens"),
            *_post("/v1/device-tokens"),
            ("DELETE", "/v1/device-tokens/{name}"),
        ),
    ),
    Rows(
        Row("Users: see, invite, change, revoke", _ADMIN | {"session": REFUSED}, b"{}"),
        (
            *_get("/v1/admin/users"),
            *_post("/v1/admin/users", "/v1/admin/users/{user}/invitation"),
            ("PATCH", "/v1/admin/users/{user}"),
            ("DELETE", "/v1/admin/users/{user}"),
        ),
    ),
    Rows(
        Row(
            "How the platform does, its log lines, refused records",
            _ADMIN | {"session": REFUSED},
        ),
        (
            *_get("/v1/admin/overview", "/v1/admin/brokers", "/v1/admin/log"),
            *_get("/v1/admin/refused", "/v1/admin/refused/{place}"),
        ),
    ),
    Rows(
        Row(
            "The log: see topics, records and groups; change topics, offsets, leaders, replicas",
            _ADMIN | {"session": REFUSED},
            b"{}",
        ),
        (
            *_get("/v1/admin/topics", _ADMIN_TOPIC_PATH, f"{_ADMIN_TOPIC_PATH}/records"),
            *_get(f"{_ADMIN_TOPIC_PATH}/records/{{partition}}/{{offset}}"),
            *_get("/v1/admin/groups", "/v1/admin/groups/{group}"),
            *_post("/v1/admin/topics", f"{_ADMIN_TOPIC_PATH}/elections"),
            *_post(f"{_ADMIN_TOPIC_PATH}/reassignments", "/v1/admin/groups/{group}/offsets"),
            *_post("/v1/admin/refused/retries"),
            *(("PATCH", _ADMIN_TOPIC_PATH), ("DELETE", _ADMIN_TOPIC_PATH)),
        ),
    ),
    Rows(
        Row("One's own friends: see, ask, add, end, block", _USERS | {"token": REFUSED}),
        (
            *_get("/v1/friends", "/v1/friends/requests"),
            *(("PUT", "/v1/friends/{user}"), ("DELETE", "/v1/friends/{user}")),
            ("DELETE", "/v1/friends/{user}/sight"),
            *_post("/v1/friends/{user}/request", "/v1/friends/{user}/decline"),
            ("DELETE", "/v1/friends/{user}/request"),
            *(("PUT", "/v1/friends/{user}/block"), ("DELETE", "/v1/friends/{user}/block")),
        ),
    ),
    Rows(
        Row("Shares of one's own devices: see, make, end", _USERS | {"token": REFUSED}, b"{}"),
        (*_get("/v1/shares"), *_post("/v1/shares"), ("DELETE", "/v1/shares/{share}")),
    ),
    Rows(
        Row("What the link of a share shows (without one: 404)", _ANYBODY),
        _get("/v1/shared", "/v1/shared/track", "/v1/shared/stream"),
    ),
    Rows(
        Row(
            "One's own zones, what happens there, and how one is told",
            _USERS | {"token": REFUSED},
            b"{}",
        ),
        (
            *_get("/v1/geofences", _ZONE, "/v1/events", "/v1/alert-channels"),
            *_get("/v1/alert-settings", "/v1/alert-channels/kinds"),
            *_post("/v1/geofences", "/v1/alert-channels", f"{_CHANNEL}/test"),
            *_post(f"{_CHANNEL}/confirmation"),
            ("PUT", f"{_CHANNEL}/confirmation"),
            *(("PUT", _ZONE), ("DELETE", _ZONE), ("PUT", _CHANNEL), ("DELETE", _CHANNEL)),
            ("PUT", "/v1/alert-settings"),
        ),
    ),
    Rows(
        Row(
            "Say what the places of the device are",
            verdicts(REFUSED, nobodies=UNKNOWN, owner=YES, session=YES),
            b"{}",
        ),
        (
            *_get("/v1/devices/{device}/place-edits"),
            *((method, "/v1/devices/{device}/places/{place}") for method in ("PATCH", "DELETE")),
        ),
    ),
    Rows(
        Row(
            "One's own forwardings to other servers",
            _USERS | {"token": REFUSED},
            b"{}",
        ),
        (
            *_get("/v1/forwardings", _FORWARDING),
            *_post("/v1/forwardings", f"{_FORWARDING}/pause", f"{_FORWARDING}/resume"),
            *(("PATCH", _FORWARDING), ("DELETE", _FORWARDING)),
        ),
    ),
    Rows(
        Row(
            "Import files into one's own devices: upload, read",
            _USERS | {"token": REFUSED, "looker": REFUSED},
            b"{}",
        ),
        (*_post("/v1/imports", f"{_IMPORT}/run"), ("PATCH", f"{_IMPORT}/files/{{number}}")),
    ),
    Rows(
        Row("One's own imports: see, undo", _USERS | {"token": REFUSED}),
        (*_get("/v1/imports", _IMPORT), ("DELETE", _IMPORT)),
    ),
    Rows(
        Row("Take out one's own data: everything, or a device", _USERS | {"token": REFUSED}),
        _get("/v1/export"),
    ),
    Rows(
        Row("Forwardings of all users, and pauses of them", _ADMIN, b"{}"),
        (
            *_get("/v1/admin/forwardings", "/v1/admin/forwarding-pauses"),
            *_post("/v1/admin/forwarding-pauses"),
            ("DELETE", "/v1/admin/forwardings"),
            ("DELETE", "/v1/admin/forwardings/{user}/{forwarding}"),
            ("DELETE", "/v1/admin/forwarding-pauses/{pause}"),
        ),
    ),
    Rows(
        Row(
            "Make a token for another device",
            verdicts(YES, nobodies=UNKNOWN, session=UNKNOWN, token=REFUSED),
            b'{"device_name":"new"}',
        ),
        _post("/api/mobile_app/registrations"),
    ),
    Rows(Row("MQTT over WebSocket (credentials come later, in CONNECT)", _ANYBODY), _get("/mqtt")),
    Rows(
        Row("The log itself (Kafka REST)", _ADMIN, b"{}"),
        (
            *_get("/topics", "/topics/{topic}", "/topics/{topic}/partitions", "/brokers"),
            *_get("/topics/{topic}/partitions/{partition}"),
            *_get("/topics/{topic}/partitions/{partition}/offsets"),
            *_post("/topics/{topic}", "/topics/{topic}/partitions/{partition}"),
            *_post("/consumers/{group}"),
            ("DELETE", _CONSUMER),
            *_post(*(f"{_CONSUMER}/{each}" for each in ("subscription", "assignments"))),
            *_post(*(f"{_CONSUMER}/positions{each}" for each in ("", "/beginning", "/end"))),
            *_post(f"{_CONSUMER}/offsets"),
            *_get(*(f"{_CONSUMER}/{each}" for each in ("subscription", "assignments"))),
            *_get(*(f"{_CONSUMER}/{each}" for each in ("records", "offsets"))),
            ("DELETE", f"{_CONSUMER}/subscription"),
        ),
    ),
)

_SHOWN: Final = verdicts(YES, nobodies=UNKNOWN, former=HIDDEN, other=HIDDEN, looker=HIDDEN)

#: Answers and streams that may contain the owner's device `phone`, by the tests' names for them.
CONTENTS: Final = {
    "list": Row("`GET /v1/devices` lists the device", _SHOWN),
    "sse": Row("`GET /v1/stream` shows its fixes, live", _SHOWN),
    "websocket": Row("`GET /v1/ws` shows its fixes, live", _SHOWN),
    "owntracks": Row(
        "OwnTracks' HTTP answer shows where the device is, and its card",
        verdicts(HIDDEN, nobodies=UNKNOWN, session=UNKNOWN, looker=REFUSED, friend=YES),
    ),
}

_OWN_TOPIC: Final = verdicts(NO, owner=YES, token=YES, admin=YES)
_SHOWN_TOPIC: Final = _OWN_TOPIC | {"friend": YES}
_ADMIN_TOPIC: Final = verdicts(NO, admin=YES)

#: By action of a client and topic. A person with a session tries its cookie as a password.
MQTT: Final = {
    ("subscribe", "owntracks/owner/phone"): _SHOWN_TOPIC,
    ("subscribe", "owntracks/owner/phone/event"): _SHOWN_TOPIC,
    ("subscribe", "owntracks/owner/phone/info"): _SHOWN_TOPIC,
    ("subscribe", "devices/owner/phone/address"): _SHOWN_TOPIC,
    ("subscribe", "devices/owner/phone/position"): _SHOWN_TOPIC,
    ("subscribe", "owntracks/owner/phone/cmd"): _OWN_TOPIC,
    ("subscribe", "owntracks/owner/phone/waypoint"): _OWN_TOPIC,
    ("subscribe", "owntracks/owner/tablet/cmd"): _OWN_TOPIC | {"token": NO},
    ("subscribe", "devices/owner/phone/notice"): _OWN_TOPIC,
    ("subscribe", "plant/1/temperature"): _ADMIN_TOPIC,
    ("publish", "owntracks/owner/phone"): _OWN_TOPIC,
    ("publish", "owntracks/owner/phone/cmd"): _OWN_TOPIC,
    ("publish", "devices/owner/phone/position"): _OWN_TOPIC,
    ("publish", "owntracks/owner/tablet"): _OWN_TOPIC | {"token": NO},
    ("publish", "devices/owner/phone/address"): verdicts(NO),
    ("publish", "plant/1/temperature"): _ADMIN_TOPIC,
}


def document() -> str:
    """Return the matrix in Markdown."""
    head = f"| | {' | '.join(WHO)} |\n|---|{'---|' * len(WHO)}"
    lines = [
        "# Who may what",
        "",
        "Written by `python -m tests.attacks.authorization`. A test asks a running gateway for",
        "each cell, and finds routes that have no row. `yes`: served. `401`, `403`, `410`: refused",
        "by HTTP. `no`: refused over MQTT. `-`: answered, and the device is not in it.",
        "",
        *(f"- **{name}**: {what}" for name, what in WHO.items()),
        "",
        "## HTTP",
        "",
        head,
        *(_line(rows.row.title, rows.row.expected) for rows in HTTP),
        "",
        "## What is in answers and streams",
        "",
        head,
        *(_line(row.title, row.expected) for row in CONTENTS.values()),
        "",
        "## MQTT, plain and over WebSocket",
        "",
        head,
        *(_line(f"{does} `{topic}`", row) for (does, topic), row in MQTT.items()),
        "",
        "## Routes by line",
        "",
        "| line | routes |",
        "|---|---|",
        *(f"| {rows.row.title} | {_named(rows)} |" for rows in HTTP),
        "",
    ]
    return "\n".join(lines)


def _named(rows: Rows) -> str:
    return ", ".join(f"`{method} {path}`" for method, path in rows.routes)


def _line(title: str, expected: Verdicts) -> str:
    return f"| {title} | {' | '.join(expected[who] for who in WHO)} |"


if __name__ == "__main__":
    print(document(), end="")
