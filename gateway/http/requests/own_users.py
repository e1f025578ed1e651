"""Users who ask about what is their own: not the token of a device, and no stranger."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from aiohttp import web

from gateway.http.requests.authentication import known_user
from gateway.http.requests.responses import Refused
from gateway.http.requests.services import Services
from gateway.users.auth import Identity
from gateway.users.database import OPERATOR

_OF_USERS: Final = "devices belong to users: sign in as one (`waylog link USER` prints a link)"


class Reasons(NamedTuple):
    """What is said to those who are refused."""

    signed_out: str
    of_device: str  # to the token of a device
    unknown: str  # to who is no user of this platform
    #: To the installation's administrator; None: who is taken for a user.
    operator: str | None = _OF_USERS


async def own_user(request: web.Request, services: Services, reasons: Reasons) -> Identity:
    """Return the user who asks, by credentials or by a session of the page. Raises Refused."""
    identity = await known_user(request, reasons.signed_out, by_session=True)
    if identity.device is not None:
        raise Refused(403, reasons.of_device)
    if identity.user == OPERATOR and reasons.operator is not None:
        raise Refused(403, reasons.operator)
    if not await asyncio.to_thread(services.users.exists, identity.user):
        raise Refused(403, reasons.unknown)
    return identity
