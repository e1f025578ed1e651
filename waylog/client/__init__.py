"""A client of the gateway's HTTP interface: send positions, follow devices, read the past.

    from waylog.client import Client, Position

    with Client("http://127.0.0.1:8080", user="ann", token="...") as waylog:
        waylog.send(Position(device="phone", lat=47.141, lon=9.5209))

`AsyncClient` has the same methods for asyncio. Both are described in docs/client.md.
"""

from waylog.client.answers import (
    Device,
    DeviceReceipt,
    DeviceToken,
    FavouritePlace,
    Journey,
    NewDeviceToken,
    PlaceRole,
    Position,
    Refusal,
    Sent,
    TrackPoint,
    Visit,
)
from waylog.client.async_client import AsyncClient
from waylog.client.client import Client
from waylog.client.errors import ApiError, Unreachable
from waylog.client.live import Skipped
from waylog.messages import Address, Fix
from waylog.movement.diary import Gap, Stay, Total, Trip

__all__ = [
    "Address",
    "ApiError",
    "AsyncClient",
    "Client",
    "Device",
    "DeviceReceipt",
    "DeviceToken",
    "FavouritePlace",
    "Fix",
    "Gap",
    "Journey",
    "NewDeviceToken",
    "PlaceRole",
    "Position",
    "Refusal",
    "Sent",
    "Skipped",
    "Stay",
    "Total",
    "TrackPoint",
    "Trip",
    "Unreachable",
    "Visit",
]
