"""The parts of a gateway, on a log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.fixes.submit import Submitter
from gateway.friends.friend_events import FriendEventFilter
from gateway.friends.friend_filter import FriendFilter
from gateway.http.requests.services import Services
from gateway.limits.bounds import HttpLimits
from gateway.limits.error_bytes import ErrorBytes
from gateway.notices.notices import Notices
from gateway.observability.metrics import GatewayMetrics
from gateway.tracks.archive import Archive
from gateway.users.admission import Admission
from gateway.users.auth import Authenticator
from gateway.users.card_book import CardBook
from gateway.users.database import UserStore
from gateway.users.permissions import Permissions
from gateway.viewers.area_ticks import show_areas
from gateway.viewers.areas import AreaViews
from gateway.viewers.viewers import Viewers
from gateway.views.address_view import AddressView
from gateway.views.location_view import LocationView
from gateway.views.pipeline import GroupLag, Pipeline
from gateway.views.places import Places
from tests.gateway.records import MemoryLog, MemoryTelemetry
from waylog.network.served_hosts import ServedHosts
from waylog.process.machine_lock import MachineLock


@asynccontextmanager
async def parts(
    folder: Path,
    *,
    log: MemoryLog | None = None,
    limits: HttpLimits | None = None,
    error_bytes: ErrorBytes | None = None,
    admission: Admission | None = None,
    open_mode: bool = True,
    past: Path | None = None,
) -> AsyncIterator[Services]:
    """Yield services; `past` is a folder with places, visits and trips."""
    store = UserStore(folder / "users.db")
    metrics = GatewayMetrics()
    locations, addresses = LocationView(), AddressView()
    places = Places(None if past is None else str(past))
    once = MachineLock(folder / "notices")
    lag = GroupLag("127.0.0.1:1", "test", "resolver")
    authenticator = Authenticator(store, open_mode=open_mode)
    permissions = Permissions(store, open_mode=open_mode)
    friend_filter = FriendFilter(places, b"secret")
    areas = AreaViews(locations, friend_filter)
    services = Services(
        submitter=Submitter(
            *(log or MemoryLog(), MemoryTelemetry(), asyncio.get_running_loop()),
            metrics=metrics,
            error_bytes=error_bytes,
        ),
        authenticator=authenticator,
        permissions=permissions,
        address_view=addresses,
        location_view=locations,
        viewers=Viewers(
            (locations, addresses), metrics, permissions, FriendEventFilter(friend_filter)
        ),
        areas=areas,
        metrics=metrics,
        pipeline=Pipeline(locations, addresses, metrics, lag),
        places=places,
        friend_filter=friend_filter,
        notices=Notices(places, locations, once),
        admission=admission or Admission.in_memory(),
        cards=CardBook(store),
        users=store,
        bootstrap_servers="127.0.0.1:1",
        limits=limits or HttpLimits(),
        hosts=ServedHosts("127.0.0.1", ("x",)),
        archive=Archive(None, None if past is None else str(past)),
    )
    ticking = show_areas(areas)
    try:
        yield services
    finally:
        ticking.cancel()
        await services.archive.close()
        once.close()
        authenticator.close()
        store.close()
