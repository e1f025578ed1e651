"""The parts of a gateway, on a log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.alerts.edited_places import EditedPlaces
from gateway.alerts.log_table import LogTable
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
from waylog.history.place_edits import decode_place_edit
from waylog.kafka.topics import PLACE_EDIT_TOPIC
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
    bootstrap_servers: str = "127.0.0.1:1",
) -> AsyncIterator[Services]:
    """Yield services; `past` is a folder with places, visits and trips.

    What asks for places reads their edits in the log, and waits ten seconds for one that is away:
    with a `past`, give `bootstrap_servers` that answer.
    """
    store = UserStore(folder / "users.db")
    metrics = GatewayMetrics()
    locations, addresses = LocationView(), AddressView()
    places = Places(None if past is None else str(past))
    once = MachineLock(folder / "notices")
    lag = GroupLag("127.0.0.1:1", "test", "resolver")
    authenticator = Authenticator(store, open_mode=open_mode)
    permissions = Permissions(store, open_mode=open_mode)
    friend_filter = FriendFilter(places, b"secret")
    edits = LogTable(bootstrap_servers, "test", PLACE_EDIT_TOPIC, None, decode_place_edit)
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
        bootstrap_servers=bootstrap_servers,
        edited_places=EditedPlaces(edits),
        limits=limits or HttpLimits(),
        hosts=ServedHosts("127.0.0.1", ("x",)),
        archive=Archive(None, None if past is None else str(past)),
    )
    ticking = show_areas(areas)
    try:
        yield services
    finally:
        ticking.cancel()
        await edits.close()
        await services.archive.close()
        once.close()
        authenticator.close()
        store.close()
