"""`/v1/geofences`: the zones of a user, and `/v1/events`: what has happened in them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from gateway.alerts.alerts import zone_key
from gateway.alerts.zone_requests import (
    ZONES_PER_USER_MAX,
    BadZone,
    Zone,
    read_zone,
    shown_zone,
)
from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.own_users import Reasons, own_user
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer, unavailable
from gateway.http.requests.services import Services
from gateway.users.auth import Identity
from waylog.bounded_cache import BoundedCache
from waylog.geofences.definition import Geofence, check_key, encode_geofence
from waylog.kafka.clients import LogUnreachable
from waylog.malformed import MALFORMED
from waylog.network.token_bucket import TokenBucket
from waylog.observability.telemetry import now_ms

Result = TypeVar("Result")

_PATH: Final = "/v1/geofences"
_ONE: Final = f"{_PATH}/{{geofence}}"
#: Changes that a user may make: one every two seconds, and so many at once.
_CHANGES_PER_S: Final = 1 / 2
_CHANGES_AT_ONCE: Final = 60
_USERS_MAX: Final = 10_000
_WAIT_MAX_S: Final = 25.0


class Changes:
    """Bounds how often a user changes things."""

    def __init__(self) -> None:
        self._buckets = BoundedCache[str, TokenBucket](
            lambda _: TokenBucket(_CHANGES_PER_S, burst=_CHANGES_AT_ONCE), _USERS_MAX
        )
        self._locks = BoundedCache[str, asyncio.Lock](lambda _: asyncio.Lock(), _USERS_MAX)

    def take(self, identity: Identity) -> None:
        """Count one; raises Refused."""
        if not self._buckets.get(identity.user).take():
            raise Refused(429, "too many changes", {"Retry-After": "5"})

    def lock(self, identity: Identity) -> asyncio.Lock:
        """Return what keeps two changes of a user from being made by the same state."""
        return self._locks.get(identity.user)


async def from_log(asked: Awaitable[Result]) -> Result:
    """Return what the log answers; raises Refused."""
    try:
        return await asked
    except LogUnreachable as error:
        raise unavailable(f"the log does not answer: {error}") from error


def reasons_for(what: str) -> Reasons:
    """Return what is said to those to whom some things of users are refused."""
    unknown = f"only users of this platform can have {what}"
    return Reasons(
        f"{what} are for users who have signed in",
        f"{what} are of users and not of devices: sign in as the user",
        unknown,
        operator=unknown,
    )


_ZONES: Final = reasons_for("zones")
_EVENTS: Final = reasons_for("events")


class ZoneRoutes:
    """The handlers of `/v1/geofences` and `/v1/events`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest
        self._changes = Changes()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get(_PATH, self._list, allow_head=False),
            web.post(_PATH, self._create),
            web.get(_ONE, self._show, allow_head=False),
            web.put(_ONE, self._change),
            web.delete(_ONE, self._remove),
            web.get("/v1/events", self._events, allow_head=False),
        ]

    async def _user(self, request: web.Request) -> Identity:
        return await own_user(request, self._services, _ZONES)

    async def _known(self, user: str) -> dict[str, Geofence]:
        return await from_log(self._services.alerts.zones.of(user))

    async def _found(self, request: web.Request, user: str) -> tuple[str, dict[str, Geofence]]:
        key, known = f"{user}/{request.match_info['geofence']}", await self._known(user)
        if key not in known:
            raise Refused(404, "you have no such zone")
        return key, known

    async def _list(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        zones = [shown_zone(*each) for each in (await self._known(identity.user)).items()]
        return json_answer(sorted(zones, key=lambda zone: (zone.name.casefold(), zone.id)))

    async def _show(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        key, known = await self._found(request, identity.user)
        return json_answer(shown_zone(key, known[key]))

    async def _read(self, request: web.Request, identity: Identity) -> Geofence:
        body = await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX)
        try:
            return await asyncio.to_thread(read_zone, bytes(body))
        except BadZone as error:
            raise Refused(400, str(error)) from error
        except MALFORMED as error:
            raise Refused(400, f"not a zone: {error}") from error

    async def _create(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        self._changes.take(identity)
        fence = await self._read(request, identity)
        async with self._changes.lock(identity):
            known = await self._known(identity.user)
            if len(known) >= ZONES_PER_USER_MAX:
                raise Refused(409, f"a user has {ZONES_PER_USER_MAX} zones at most; delete one")
            key = check_key(identity.user, secrets.token_hex(8))
            return json_answer(await self._put(key, fence, known, now_ms()), 201)

    async def _change(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        self._changes.take(identity)
        fence = await self._read(request, identity)
        async with self._changes.lock(identity):
            key, known = await self._found(request, identity.user)
            return json_answer(await self._put(key, fence, known, known[key].created))

    async def _put(
        self, key: str, fence: Geofence, known: dict[str, Geofence], created: int | None
    ) -> Zone:
        wanted = shown_zone(key, fence).name.casefold()
        for other, zone in known.items():
            if other != key and shown_zone(other, zone).name.casefold() == wanted:
                raise Refused(409, "another one of your zones has this name")
        stored = msgspec.structs.replace(fence, created=created)
        await from_log(self._services.alerts.zones.put(key, encode_geofence(stored)))
        return shown_zone(key, stored)

    async def _remove(self, request: web.Request) -> web.Response:
        # Not limited: to end something must always be possible.
        identity = await self._user(request)
        async with self._changes.lock(identity):
            key, _ = await self._found(request, identity.user)
            await from_log(self._services.alerts.zones.put(key, None))
        return web.Response(status=204)

    async def _events(self, request: web.Request) -> web.Response:
        identity = await own_user(request, self._services, _EVENTS)
        alerts = self._services.alerts
        text = request.query.get("wait", "0")
        if not text.isdecimal() or len(text) > 3:
            raise Refused(400, f"wait is up to {_WAIT_MAX_S:g} seconds")
        await from_log(alerts.zones.open())
        cursor, found = await from_log(
            self._services.recent_events.after(
                identity.user, request.query.get("after", ""), min(float(text), _WAIT_MAX_S)
            )
        )
        events = []
        for _, event, kind in found:
            members = event.attributes or {}
            key = zone_key(event)
            ways = alerts.ways(identity.user, event, kind, is_own=True)
            # A zone of everybody has a name and no id of the user's.
            events.append(
                {
                    "id": event.id,
                    "device": event.device,
                    "kind": kind,
                    "time": event.time,
                    "zone": None if key is None else key.partition("/")[2],
                    "name": members.get("fence"),
                    "lat": members.get("lat"),
                    "lon": members.get("lon"),
                    "alert": ways.browser,
                }
            )
        return json_answer({"cursor": cursor, "events": events})
