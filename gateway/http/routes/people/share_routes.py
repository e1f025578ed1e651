"""`/v1/shares`: users make links that show some of their devices to people without an account."""

from __future__ import annotations

import asyncio
import unicodedata
from typing import Any, Final

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.browsers import url_of_platform
from gateway.http.requests.own_users import Reasons, own_user
from gateway.http.requests.past import checked_time
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.people.asked_terms import Time, metres_of
from gateway.shares.share import Offer, Precision, Share
from gateway.shares.share_table import SHARES_MAX, TooManyShares
from gateway.users.admission import QuotaExceeded
from gateway.users.auth import Identity
from gateway.users.database import DEVICE_NAME
from gateway.users.invitations import qr_picture
from waylog.malformed import MALFORMED
from waylog.observability.telemetry import now_ms

_PATH: Final = "/v1/shares"
_DEVICES_MAX: Final = 50
_NAME_CHARACTERS_MAX: Final = 100
_PERIOD_DAYS_MAX: Final = 31
_DAY_MS: Final = 86_400_000

_REASONS: Final = Reasons(
    "shares are for users who have signed in",
    "a token of one device cannot see, make or end shares",
    "only users of this platform can share their devices",
)


class _Asked(msgspec.Struct, forbid_unknown_fields=True, rename={"begin": "from", "end": "to"}):
    devices: list[str]
    until: Time
    name: str = ""
    begin: Time | None = None
    end: Time | None = None
    precision: Precision = "exact"
    metres: int | None = None
    hides_home: bool = True


class OwnShare(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    """A share as its owner sees it; times in ms."""

    id: str
    name: str
    devices: tuple[str, ...]
    created: int
    until: int
    live: bool
    begin: int | None
    end: int | None
    precision: Precision
    metres: int | None
    hides_home: bool


class NewShare(OwnShare, frozen=True):
    """The answer to a POST: the link, which is in no other answer, and its QR code (SVG)."""

    url: str
    qr_code: str


class ShareRoutes:
    """The handlers of `/v1/shares`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of a user's shares."""
        return [
            web.get(_PATH, self._list, allow_head=False),
            web.post(_PATH, self._create),
            web.delete(f"{_PATH}/{{share}}", self._end),
        ]

    async def _user(self, request: web.Request) -> Identity:
        return await own_user(request, self._services, _REASONS)

    async def _list(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        shares = await asyncio.to_thread(self._services.users.shares.of_user, identity.user)
        return json_answer([OwnShare(**_members(each)) for each in shares])

    async def _create(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        try:
            body = await self._ingest.read_body(request, identity, COMMAND_BYTES_MAX)
            asked = msgspec.json.decode(body, type=_Asked)
        except MALFORMED as error:
            raise Refused(400, f"not a share: {error}") from error
        now = now_ms()
        from_ms, to_ms = _period_of(asked, now)
        offer = Offer(
            devices=_devices_of(asked, identity.user),
            until=self._until_of(asked, now),
            name=_name_of(asked.name),
            from_ms=from_ms,
            to_ms=to_ms,
            precision=asked.precision,
            metres=metres_of(asked.precision, asked.metres),
            hides_home=asked.hides_home,
        )
        shares = self._services.users.shares
        try:
            self._services.admission.take_registration(identity)
            share, token = await asyncio.to_thread(shares.add, identity.user, offer)
        except QuotaExceeded as error:
            raise Refused(429, str(error), {"Retry-After": error.retry_after}) from error
        except TooManyShares as error:
            raise Refused(403, f"you have {SHARES_MAX} shares: end some") from error
        except KeyError as error:
            raise Refused(403, "only users of this platform can share their devices") from error
        url = f"{url_of_platform(request)}/share#{token}"
        picture = (await asyncio.to_thread(qr_picture, url)).decode()
        answer = json_answer(NewShare(**_members(share), url=url, qr_code=picture), 201)
        answer.headers["Cache-Control"] = "no-store"
        return answer

    def _until_of(self, asked: _Asked, now: int) -> int:
        until = checked_time("until", asked.until)
        days = self._services.limits.share_days_max
        if not now < until <= now + days * _DAY_MS:
            raise Refused(400, f"until must be in the next {days} days (--share-days-max)")
        return until

    async def _end(self, request: web.Request) -> web.Response:
        identity = await self._user(request)
        shares = self._services.users.shares
        ended = await asyncio.to_thread(shares.end, identity.user, request.match_info["share"])
        if not ended:
            raise Refused(404, "you have no such share")
        # Its viewers are disconnected now, here, and by other workers when they look.
        self._services.permissions.look()
        return web.Response(status=204)


def _members(share: Share) -> dict[str, Any]:
    return {
        **{"id": share.id, "name": share.name, "devices": share.devices},
        **{"created": share.created, "until": share.until, "live": share.is_live},
        **{"begin": share.from_ms, "end": share.to_ms, "precision": share.precision},
        **{"metres": share.metres, "hides_home": share.hides_home},
    }


def _devices_of(asked: _Asked, user: str) -> tuple[str, ...]:
    devices = tuple(dict.fromkeys(asked.devices))
    if not 0 < len(devices) <= _DEVICES_MAX:
        raise Refused(400, f"devices must be 1 to {_DEVICES_MAX}")
    for device in devices:
        owner, _, name = device.partition("/")
        if owner != user:
            raise Refused(403, "only your own devices can be shared: USER/DEVICE")
        if DEVICE_NAME.fullmatch(name) is None:
            raise Refused(400, "devices must be names of devices: USER/DEVICE")
    return devices


def _period_of(asked: _Asked, now: int) -> tuple[int, int] | tuple[None, None]:
    if asked.begin is None and asked.end is None:
        return None, None
    if asked.begin is None or asked.end is None:
        raise Refused(400, "a period has from and to; a live share has neither")
    begin, end = checked_time("from", asked.begin), checked_time("to", asked.end)
    if not begin < end <= now:
        raise Refused(400, "a period must have passed, and begin before it ends")
    if end - begin > _PERIOD_DAYS_MAX * _DAY_MS:
        raise Refused(400, f"a period has at most {_PERIOD_DAYS_MAX} days")
    return begin, end


def _name_of(text: str) -> str:
    """Return a name without what is not shown: control characters, and marks of direction."""
    shown = "".join(each if unicodedata.category(each)[0] != "C" else " " for each in text)
    name = " ".join(shown.split())
    if len(name) > _NAME_CHARACTERS_MAX:
        raise Refused(400, f"name must have at most {_NAME_CHARACTERS_MAX} characters")
    return name
