"""The newest fix and the newest address of a device, as a user may see them."""

from __future__ import annotations

from typing import NamedTuple

from gateway.friends.friend_filter import told_at
from gateway.http.requests.services import Services
from gateway.users.auth import Identity
from gateway.users.permissions import Visibility, newest_since, terms_of, visibility_of
from gateway.views.location_view import newest_fix
from waylog.messages import Address, Fix


class Newest(NamedTuple):
    """The newest records of a device that a user may see; None for those that are not visible."""

    fix: Fix | None
    address: Address | None


def newest_of(device: str, identity: Identity, services: Services) -> Newest:
    """Return what a user may see of a device (`user/device`) now; friends see filtered records."""
    sight = visibility_of(identity, device)
    if sight is Visibility.NOTHING:
        return Newest(None, None)
    address = services.address_view.latest(device)
    fix = newest_fix(services.location_view, device, address)
    if sight is Visibility.EVERYTHING:
        return Newest(fix, address)
    owner = device.partition("/")[0]
    since = newest_since(identity, owner)
    tell, terms = services.friend_filter, terms_of(identity, owner)
    return Newest(
        tell.fix(fix, terms) if fix is not None and told_at(fix) >= since else None,
        tell.address(address, terms) if address is not None and told_at(address) >= since else None,
    )
