"""`/v1/shared`: what somebody sees who has nothing but the link of a share.

The page `/share#TOKEN` sends the token in a header. What a viewer may see is decided where it is
decided for friends (gateway.users.permissions), and told as to friends, under the share's terms
(gateway.friends.friend_filter).
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from gateway.http.requests.authentication import share_viewer
from gateway.http.requests.newest import newest_of
from gateway.http.requests.past import archived, homes_known
from gateway.http.requests.responses import Refused, in_pieces, json_answer
from gateway.http.requests.services import SERVICES, Services
from gateway.http.routes.stream import send_events
from gateway.shares.share import Precision, Share
from gateway.users.auth import Identity
from gateway.users.permissions import may_look_back, terms_of
from gateway.viewers.log_range import LogRanges
from gateway.viewers.viewers import Filter
from waylog.messages import Address, Fix
from waylog.observability.telemetry import now_ms


class SharedDevice(msgspec.Struct, frozen=True):
    """A device of a share, with its newest position and address if the share is live."""

    device: str
    fix: Fix | None = None
    address: Address | None = None


class SharedView(
    msgspec.Struct, frozen=True, rename={"shared_by": "by", "begin": "from", "end": "to"}
):
    """A share as its viewers see it; times in ms, and `now` by the clock of the platform."""

    shared_by: str
    name: str
    until: int
    now: int
    live: bool
    begin: int | None
    end: int | None
    precision: Precision
    metres: int | None
    hides_home: bool
    devices: list[SharedDevice]


class SharedRoutes:
    """The handlers of `/v1/shared`."""

    def __init__(self, ranges: LogRanges) -> None:
        self._ranges = ranges

    def routes(self) -> list[web.RouteDef]:
        """Return the routes for viewers of a share."""
        return [
            web.get("/v1/shared", self._view, allow_head=False),
            web.get("/v1/shared/track", self._track, allow_head=False),
            web.get("/v1/shared/stream", self._stream, allow_head=False),
        ]

    async def _view(self, request: web.Request) -> web.Response:
        identity, share = await _viewer(request)
        services = request.app[SERVICES]
        return json_answer(
            SharedView(
                *(share.user, share.name, share.until, now_ms(), share.is_live),
                *(share.from_ms, share.to_ms, share.precision, share.metres, share.hides_home),
                [
                    SharedDevice(each, *newest_of(each, identity, services))
                    for each in share.devices
                ],
            )
        )

    async def _track(self, request: web.Request) -> web.Response:
        identity, share = await _viewer(request)
        device = request.query.get("device", "")
        if not may_look_back(identity, device):
            raise Refused(403, "this share shows no track of that device")
        services = request.app[SERVICES]
        body = await archived(_track_of(device, identity, share, services))
        return web.Response(body=in_pieces(body), content_type="application/geo+json")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        identity, share = await _viewer(request)
        wanted = Filter(devices=frozenset(share.devices))
        return await send_events(self._ranges, request, identity, wanted, until_ms=share.until)


async def _viewer(request: web.Request) -> tuple[Identity, Share]:
    """Return who asks, and the share. Raises Refused; waits for homes that are to be hidden."""
    identity = share_viewer(request)
    share = identity.share
    assert share is not None
    if share.hides_home:
        await homes_known(request.app[SERVICES])
    return identity, share


async def _track_of(
    device: str, identity: Identity, share: Share, services: Services
) -> list[bytes]:
    assert share.from_ms is not None and share.to_ms is not None
    terms = terms_of(identity, share.user)
    return await services.archive.track(
        *(device, share.from_ms, share.to_ms),
        recent=services.location_view.track_pieces(device),
        circles=services.friend_filter.circles_for(share.user, terms),
        name="geojson",
        grid=services.friend_filter.grid_for(share.user, terms),
        party=identity.user,
    )
