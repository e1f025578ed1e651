"""`GET /v1/devices/{device}/receipts`: where the fixes of a device's day are."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from gateway.http.requests.authentication import reader, require_device, shown_credentials
from gateway.http.requests.responses import Refused, json_answer, unavailable
from gateway.http.requests.services import SERVICES, Services
from gateway.http.routes.address_deliveries import ClientDelivery, address_deliveries
from gateway.tracks.asking import AnswerRefused, AnswerUnavailable
from gateway.users.auth import Identity
from gateway.users.permissions import Visibility, visibility_of
from waylog.audit.days import parse_day
from waylog.audit.facts import AddressFact
from waylog.audit.forwarding_accounts import for_administrators
from waylog.audit.pushes import CHANNELS, PushSums
from waylog.audit.receipts import Receipt
from waylog.config import ConfigError
from waylog.observability.telemetry import now_ms

_OTHER_WORKERS: Final = "clients of other MQTT workers are not known to this one"
_NOT_FORWARDINGS: Final = (
    "what forwardings have sent is told to users who give name and token, not to a token of one "
    "device or a browser's session"
)
_NO_MQTT: Final = "this gateway has no MQTT clients"


class Pushed(msgspec.Struct, frozen=True):
    """What is known of addresses on their way to the owner, and what is not."""

    mqtt: list[ClientDelivery]
    unknown: list[str]


class DeviceReceipt(Receipt, frozen=True, kw_only=True):
    """The receipt of a device, and what a gateway knows beside the log."""

    pushed: Pushed


def routes() -> list[web.RouteDef]:
    """Return the route."""
    return [web.get("/v1/devices/{device}/receipts", _receipts)]


async def _receipts(request: web.Request) -> web.Response:
    identity = await reader(request)
    device = request.match_info["device"]
    require_device(identity, device)
    if visibility_of(identity, device) is not Visibility.EVERYTHING:
        raise Refused(403, "receipts of a device are for its owner")
    try:
        day = parse_day(
            request.query.get("day") or "today", request.query.get("tz") or "UTC", now_ms()
        )
    except ConfigError as error:
        raise Refused(400, str(error)) from error
    services = request.app[SERVICES]
    newest = services.address_view.latest(device)
    address = (
        None if newest is None else AddressFact(device, newest.fix_id, newest.time, newest.resolved)
    )
    try:
        receipt = await services.receipts.of_device(device, day, address, identity.user)
    except AnswerRefused as error:
        raise Refused(400, str(error)) from error
    except AnswerUnavailable as error:
        raise unavailable(str(error)) from error
    members = msgspec.structs.asdict(receipt) | _forwardings_for(request, identity, receipt)
    if receipt.pushes is not None and day.from_ms <= now_ms() < day.to_ms:
        sums = PushSums(device, day)
        for told in receipt.pushes:
            sums.add(CHANNELS.index(told.channel), told.count, told.last)
        for untold in services.pushes.untold(device):
            sums.add(*untold)
        members["pushes"] = sums.sums()
    return json_answer(DeviceReceipt(**members, pushed=_pushed(device, services)))


def _forwardings_for(
    request: web.Request, identity: Identity, receipt: Receipt
) -> dict[str, object]:
    """Return the members that tell of forwardings, for whoever may list them elsewhere."""
    forwardings = receipt.forwardings
    if not forwardings:
        return {}
    if identity.device is not None or shown_credentials(request) is None:
        return {"forwardings": None, "unknown": [*receipt.unknown, _NOT_FORWARDINGS]}
    if receipt.device.partition("/")[0] != identity.user:
        return {"forwardings": [for_administrators(each) for each in forwardings]}
    return {}


def _pushed(device: str, services: Services) -> Pushed:
    if services.mqtt is None:
        return Pushed([], [_NO_MQTT])
    clients = address_deliveries(services.mqtt.router, device)
    return Pushed(clients, [_OTHER_WORKERS])
