"""Invitations: a link, or its QR code, that configures the OwnTracks app.

https://owntracks.org/booklet/features/remoteconfig/: `owntracks:///config?inline=` and the settings
in base64.
"""

from __future__ import annotations

import base64
import io
from typing import Any, Final
from urllib.parse import quote

import msgspec

from gateway.users.cards import tid_of
from waylog.config import Endpoint

_MODE_MQTT: Final = 0
_MODE_HTTP: Final = 3
_SCHEME: Final = "owntracks:///config?inline="


def settings_of(
    user: str,
    device: str,
    token: str,
    *,
    url: str | None = None,
    mqtt: Endpoint | None = None,
    tls: bool = False,
    encryption_key: str | None = None,
) -> dict[str, Any]:
    """Return OwnTracks' configuration for HTTP (`url` of this platform) or MQTT.

    Raises ValueError unless exactly one of them is given.
    """
    if (url is None) == (mqtt is None):
        raise ValueError("an invitation is for HTTP or for MQTT")
    settings: dict[str, Any] = {
        "_type": "configuration",
        "auth": True,
        "username": user,
        "password": token,
        "deviceId": device,
        "tid": tid_of(device, None),
        # The platform sends addresses as cards and favourite places as waypoints.
        "cmd": True,
        "remoteConfiguration": True,
        "extendedData": True,
    }
    if url is not None:
        settings |= {"mode": _MODE_HTTP, "url": f"{url.rstrip('/')}/owntracks"}
    if mqtt is not None:
        settings |= {
            "mode": _MODE_MQTT,
            "host": mqtt.host,
            "port": mqtt.port,
            "tls": tls,
            "mqttProtocolLevel": 4,
            "clientId": f"{user}-{device}",
            "pubTopicBase": "owntracks/%u/%d",
            "cleanSession": False,
            "ws": False,
        }
    if encryption_key is not None:
        settings["encryptionKey"] = encryption_key
    return settings


def link_of(settings: dict[str, Any]) -> str:
    """Return the link that the app opens."""
    return _SCHEME + quote(base64.b64encode(msgspec.json.encode(settings)).decode(), safe="")


def qr_code(link: str) -> str:
    """Return the link as a QR code of block characters, for terminals."""
    import segno

    text = io.StringIO()
    segno.make(link, error="l").terminal(text, compact=True, border=2)
    return text.getvalue()


def qr_picture(link: str) -> bytes:
    """Return the link as a QR code in SVG."""
    import segno

    picture = io.BytesIO()
    segno.make(link, error="l").save(picture, kind="svg", scale=4, border=4)
    return picture.getvalue()
