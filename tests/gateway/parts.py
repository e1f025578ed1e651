"""The parts of a gateway, on a log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.admission import Admission
from gateway.auth import Authenticator
from gateway.card_book import CardBook
from gateway.friend_filter import FriendFilter
from gateway.limits import HttpLimits
from gateway.metrics import GatewayMetrics
from gateway.notices import Notices, OncePerMachine
from gateway.permissions import Permissions
from gateway.pipeline import GroupLag, Pipeline
from gateway.places import Places
from gateway.services import Services
from gateway.submit import Submitter
from gateway.telling import Telling
from gateway.users import UserStore
from gateway.viewers import Viewers
from gateway.views import AddressView, LocationView
from tests.gateway.records import MemoryLog, MemoryTelemetry
from waylog.served_hosts import ServedHosts


@asynccontextmanager
async def parts(
    folder: Path, *, log: MemoryLog | None = None, limits: HttpLimits | None = None
) -> AsyncIterator[Services]:
    """Services in open mode."""
    store = UserStore(folder / "users.db")
    metrics = GatewayMetrics()
    locations, addresses = LocationView(), AddressView()
    places = Places(None)
    once = OncePerMachine(folder / "notices")
    lag = GroupLag("127.0.0.1:1", "test", "resolver")
    authenticator = Authenticator(store, open_mode=True)
    permissions = Permissions(store, open_mode=True)
    friend_filter = FriendFilter(places, b"secret")
    yield Services(
        submitter=Submitter(
            log or MemoryLog(), MemoryTelemetry(), asyncio.get_running_loop(), metrics=metrics
        ),
        authenticator=authenticator,
        permissions=permissions,
        address_view=addresses,
        location_view=locations,
        viewers=Viewers((locations, addresses), metrics, permissions, Telling(friend_filter)),
        metrics=metrics,
        pipeline=Pipeline(locations, addresses, metrics, lag),
        places=places,
        friend_filter=friend_filter,
        notices=Notices(places, locations, once),
        admission=Admission.in_memory(),
        cards=CardBook(store),
        users=store,
        bootstrap_servers="127.0.0.1:1",
        limits=limits or HttpLimits(),
        hosts=ServedHosts("127.0.0.1", ("x",)),
    )
    once.close()
    authenticator.close()
    store.close()
