"""What the platform has of a user beside fixes: the documents of an export of everything."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.alerts.channel_requests import shown_channel
from gateway.alerts.zone_requests import shown_zone
from gateway.forwardings.store import ForwardingsOff
from gateway.http.requests.responses import unavailable
from gateway.http.requests.services import Services
from gateway.views.places import PlacesUnavailable
from waylog.forwarding.shown import shown
from waylog.kafka.clients import LogUnreachable

Documents = dict[str, msgspec.Raw]


async def account_documents(services: Services, user: str) -> Documents:
    """Return the user's settings by the names of their files, without secrets.

    Raises Refused (503).
    """
    try:
        return _encoded(
            {
                "account.json": await asyncio.to_thread(_account, services, user),
                "alerts.json": await asyncio.to_thread(_alerts, services, user),
                "zones.json": await _zones(services, user),
                "forwardings.json": await asyncio.to_thread(_forwardings, services, user),
            }
        )
    except LogUnreachable as error:
        raise unavailable(f"the log does not answer: {error}") from error


async def places_of(services: Services, devices: Sequence[str]) -> Documents:
    """Return the places of each device that has some, as its user sees them. Raises Refused."""
    found: dict[str, Any] = {}
    try:
        for device in devices:
            places = await services.places.of_device(device)
            if places:
                found[device] = await services.edited_places.places(device, places)
    except LogUnreachable as error:
        raise unavailable(f"the log does not answer: {error}") from error
    except PlacesUnavailable as error:
        raise unavailable(str(error)) from error
    return _encoded(found)


def _encoded(found: Mapping[str, Any]) -> Documents:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in found.items()}


def _account(services: Services, user: str) -> dict[str, Any]:
    users = services.users
    friendships = users.rights.friendships((user,))
    requests = users.friend_requests
    return {
        "user": user,
        "since": users.user_since(user),
        "shown_to": {
            friend: each.since for (own, friend), each in friendships.items() if own == user
        },
        "seen": {other: each.since for (other, own), each in friendships.items() if own == user},
        "shown_how": {
            friend: {"precision": each.precision, "metres": each.metres, "until": each.until}
            for (own, friend), each in friendships.items()
            if own == user
        },
        "friend_requests": {
            "received": {each.user: each.created for each in requests.received(user)},
            "sent": {each.user: each.created for each in requests.sent(user)},
            "blocked": requests.blocked(user),
        },
        "device_tokens": users.device_tokens(user),
        "shares": [
            {
                **{"id": each.id, "name": each.name, "devices": each.devices},
                **{"created": each.created, "until": each.until},
            }
            for each in users.shares.of_user(user)
        ],
    }


def _alerts(services: Services, user: str) -> dict[str, Any]:
    store = services.alerts.store
    return {
        "channels": [
            shown_channel(each, channel, None, None)
            for each, channel in store.channels(user).items()
        ],
        "settings": store.settings(user),
    }


async def _zones(services: Services, user: str) -> list[Any]:
    zones = services.alerts.zones
    return [shown_zone(*each) for each in (await zones.of(user)).items()]


def _forwardings(services: Services, user: str) -> list[Any]:
    try:
        found = services.forwardings.of_user(user)
    except ForwardingsOff:
        return []
    return [shown(each, *kept) for each, kept in found.items()]
