"""What users may ask for: bodies of requests, checked, and what they make of a forwarding."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from gateway.users.database import DEVICE_NAME
from waylog.forwarding.definition import (
    KINDS,
    MQTT,
    WEBHOOK,
    DeviceNames,
    Devices,
    Forwarding,
    Name,
    Secret,
    Url,
    changed,
)
from waylog.network.outbound.server_url import BadServerUrl, LoginInUrl, server_url

_SCHEMES: Final = ("http", "https")
_MQTT_SCHEMES: Final = ("mqtt", "mqtts")
_SIGNING_PREFIX: Final = "whsec_"
#: Standard Webhooks asks for 24 to 64 bytes, of which the longer ones do no harm.
_SIGNING_BYTES_MIN: Final = 24
#: Kinds that cannot be sent a name of the user's choice.
_NAMED_BY_USER: Final = (WEBHOOK, MQTT)


class BadForwarding(ValueError):
    """The body asks for what there is not; the message has no secrets."""


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    name: Name | msgspec.UnsetType = msgspec.UNSET
    kind: str | msgspec.UnsetType = msgspec.UNSET
    url: Url | msgspec.UnsetType = msgspec.UNSET
    devices: Devices | msgspec.UnsetType | None = msgspec.UNSET
    device_names: DeviceNames | msgspec.UnsetType = msgspec.UNSET
    username: Secret | msgspec.UnsetType | None = msgspec.UNSET
    password: Secret | msgspec.UnsetType | None = msgspec.UNSET
    token: Secret | msgspec.UnsetType | None = msgspec.UNSET
    signing_secret: Secret | msgspec.UnsetType | None = msgspec.UNSET


class Resume(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request to go on."""

    #: Leave out what came while it was paused.
    skip: bool = False


_decode: Final = msgspec.json.Decoder(_Body).decode


def new_forwarding(body: bytes, now_ms: int) -> Forwarding:
    """Return the forwarding that a body asks for; raises BadForwarding, MALFORMED."""
    members = _members(body)
    for name in ("name", "kind", "url"):
        if name not in members:
            raise BadForwarding(f"{name} is missing")
    _check_signing_secret(members)
    return _checked(Forwarding(**members, created=now_ms, since=now_ms, settled=now_ms))


def changed_forwarding(forwarding: Forwarding, body: bytes, now_ms: int) -> Forwarding:
    """Return a forwarding with the members that a body has; raises BadForwarding, MALFORMED.

    To another server the secrets do not go by themselves: they have to be said again.
    """
    members = _members(body)
    _check_signing_secret(members)
    found = changed(forwarding, **members)
    if _destination(found) != _destination(forwarding):
        # What was sent before was sent elsewhere, or for other devices: receipts do not claim it.
        found = msgspec.structs.replace(found, settled=now_ms)
    if _server(found.url) != _server(forwarding.url):
        for name in ("password", "token", "signing_secret"):
            if getattr(forwarding, name) is not None and name not in members:
                raise BadForwarding(f"for another server {name} has to be set again, or be null")
    return _checked(found)


def _members(body: bytes) -> dict[str, Any]:
    asked = _decode(body)
    return {
        name: value
        for name in asked.__struct_fields__
        if (value := getattr(asked, name)) is not msgspec.UNSET
    }


def _checked(forwarding: Forwarding) -> Forwarding:
    if forwarding.kind not in KINDS:
        raise BadForwarding(f"kind is one of {', '.join(KINDS)}")
    if not forwarding.name.isprintable():
        raise BadForwarding("name has characters that cannot be shown")
    _check_url(forwarding)
    for device in (*(forwarding.devices or ()), *forwarding.device_names):
        if DEVICE_NAME.fullmatch(device) is None:
            raise BadForwarding(f"{device!r} is no name of a device; it goes without the user's")
    if forwarding.device_names and forwarding.kind in _NAMED_BY_USER:
        raise BadForwarding(f"device_names are for servers, not for kind {forwarding.kind}")
    for device, name in forwarding.device_names.items():
        if any(each in device or each in name for each in ",=") or name != name.strip():
            raise BadForwarding("device_names: no commas, no =, and no spaces around a name")
    _check_login(forwarding)
    return forwarding


def _check_url(forwarding: Forwarding) -> None:
    """Raise BadForwarding; the message shows nothing of the URL."""
    url = forwarding.url
    try:
        parts = server_url(url, _MQTT_SCHEMES if forwarding.kind == MQTT else _SCHEMES)
    except LoginInUrl:
        raise BadForwarding("url: user and password belong into username and password") from None
    except BadServerUrl as error:
        raise BadForwarding(f"url: {error}") from None
    if "$" in parts.netloc:
        raise BadForwarding("url: the server cannot depend on the record")
    if forwarding.kind == MQTT and (parts.query or parts.fragment or "+" in url or "#" in url):
        raise BadForwarding("url: what follows the server is a topic, without + and #")


def _check_login(forwarding: Forwarding) -> None:
    if forwarding.token is not None and (
        forwarding.username is not None or forwarding.password is not None
    ):
        raise BadForwarding("either token, or username and password")
    if forwarding.password is not None and forwarding.username is None:
        raise BadForwarding("password needs username")
    if forwarding.kind != MQTT and ":" in (forwarding.username or ""):
        raise BadForwarding("username: one with a colon cannot be sent")
    if forwarding.kind == MQTT and forwarding.token is not None:
        raise BadForwarding("MQTT takes username and password")
    if not (forwarding.token or "").isascii() or not (forwarding.token or "").isprintable():
        raise BadForwarding("token has characters that cannot be sent")
    if forwarding.signing_secret is not None and forwarding.kind != WEBHOOK:
        raise BadForwarding(f"signing_secret is for kind {WEBHOOK}")


def _check_signing_secret(members: dict[str, Any]) -> None:
    """Raise BadForwarding for a new secret; one that was taken before goes on working."""
    secret = members.get("signing_secret")
    if secret is None:
        return
    key = secret.encode()
    if secret.startswith(_SIGNING_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_SIGNING_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise BadForwarding("signing_secret: what follows whsec_ is not Base64") from None
    if len(key) < _SIGNING_BYTES_MIN:
        raise BadForwarding(
            f"signing_secret has {len(key)} bytes, and has to have {_SIGNING_BYTES_MIN} or more: "
            f'`echo "{_SIGNING_PREFIX}$(openssl rand -base64 32)"` makes one'
        )


def _destination(forwarding: Forwarding) -> tuple[object, ...]:
    """Return what is sent where."""
    return forwarding.kind, forwarding.url, forwarding.devices


def _server(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()
