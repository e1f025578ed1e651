"""The newest fix and the newest address of a device, as somebody may see them."""

from __future__ import annotations

from typing import NamedTuple

from gateway.friends.friend_filter import told_at
from gateway.http.requests.services import Services
from gateway.users.auth import Identity
from gateway.users.permissions import Sight, friends_since, sight_of
from gateway.views.views import newest_fix
from waylog.messages import Address, Fix


class Newest(NamedTuple):
    """The newest of a device, as it is shown; None where nothing is."""

    fix: Fix | None
    address: Address | None


def newest_of(device: str, identity: Identity, services: Services) -> Newest:
    """Give what somebody is shown of a device (`user/device`) now, or is told as a friend."""
    sight = sight_of(identity, device)
    if sight is Sight.NOTHING:
        return Newest(None, None)
    address = services.address_view.latest(device)
    fix = newest_fix(services.location_view, device, address)
    if sight is Sight.EVERYTHING:
        return Newest(fix, address)
    since = friends_since(identity, device.partition("/")[0]) or 0
    tell = services.friend_filter
    return Newest(
        tell.fix(fix) if fix is not None and told_at(fix) >= since else None,
        tell.address(address) if address is not None and told_at(address) >= since else None,
    )
