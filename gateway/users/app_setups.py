"""What sets up an app on a phone for one device: a link (as a QR code, too), or a file.

Links: OwnTracks (gateway.users.invitations); Overland `overland://setup`
(https://github.com/aaronpk/Overland-iOS); Traccar Client scans the address of its server
(https://www.traccar.org/client-configuration/); Colota `colota://setup`
(https://github.com/dietrichmax/colota). Files: GPSLogger's profile, a package of Home Assistant.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from gateway.users.invitations import link_of, qr_picture, settings_of
from waylog.config import Endpoint


class Platform(NamedTuple):
    """How phones reach this platform."""

    url: str
    mqtt: Endpoint | None = None
    #: Whether `mqtt` is a listener with TLS.
    tls: bool = False


class PhoneDevice(NamedTuple):
    """The device of a user that a phone becomes, with its new token."""

    user: str
    name: str
    token: str
    #: The user's key for OwnTracks' encrypted payloads.
    encryption_key: str | None = None


class AppSetup(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person needs to set up an app; all of it holds the token."""

    app: str
    #: What the app opens, or scans as a QR code.
    link: str | None = None
    #: The link as a QR code in SVG.
    qr_code: str | None = None
    #: The address that is typed in where the app takes no link.
    address: str | None = None
    file_name: str | None = None
    file: str | None = None


class NoMqtt(Exception):
    """The platform has no MQTT listener."""


def _owntracks_mqtt(platform: Platform, device: PhoneDevice) -> AppSetup:
    if platform.mqtt is None:
        raise NoMqtt("this platform has no MQTT listener: choose OwnTracks over HTTP")
    settings = settings_of(
        *(device.user, device.name, device.token),
        mqtt=platform.mqtt,
        tls=platform.tls,
        encryption_key=device.encryption_key,
    )
    return _by_link("owntracks_mqtt", link_of(settings))


def _owntracks_http(platform: Platform, device: PhoneDevice) -> AppSetup:
    settings = settings_of(
        *(device.user, device.name, device.token),
        url=platform.url,
        encryption_key=device.encryption_key,
    )
    return _by_link("owntracks_http", link_of(settings))


def _overland(platform: Platform, device: PhoneDevice) -> AppSetup:
    members = {
        "url": f"{platform.url}/overland",
        "token": device.token,
        "device_id": device.name,
        "unique_id": "no",
    }
    return _by_link("overland", f"overland://setup?{urlencode(members)}")


def _traccar(platform: Platform, device: PhoneDevice) -> AppSetup:
    name = urlencode({"id": device.name})
    return _by_link("traccar", f"{platform.url}/traccar/{device.token}?{name}")


def _colota(platform: Platform, device: PhoneDevice) -> AppSetup:
    settings = {
        "endpoint": f"{platform.url}/colota",
        "httpMethod": "POST",
        "auth": {"type": "bearer", "bearerToken": device.token},
    }
    encoded = base64.b64encode(msgspec.json.encode(settings)).decode()
    return _by_link("colota", f"colota://setup?{urlencode({'config': encoded})}")


def _gpslogger(platform: Platform, device: PhoneDevice) -> AppSetup:
    address = (
        f"{platform.url}/gpslogger/{device.token}?lat=%LAT&lon=%LON&timestamp=%TIMESTAMP"
        "&acc=%ACC&alt=%ALT&spd=%SPD&dir=%DIR&batt=%BATT"
    )
    profile = (
        "log_customurl_enabled=true\n"
        "log_customurl_method=GET\n"
        "log_customurl_body=\n"
        f"log_customurl_url={address}\n"
    )
    return AppSetup(
        "gpslogger", address=address, file_name="waylog-gpslogger.properties", file=profile
    )


def _home_assistant(platform: Platform, device: PhoneDevice) -> AppSetup:
    address = f"{platform.url}/api/webhook/{device.token}"
    return AppSetup(
        "home_assistant",
        address=address,
        file_name="waylog-home-assistant.yaml",
        file=_HOME_ASSISTANT.replace("ADDRESS", address),
    )


#: Home Assistant's app speaks to its own server only, which sends its positions on.
_HOME_ASSISTANT: Final = """\
# A package of Home Assistant (https://www.home-assistant.io/docs/configuration/packages/).
# Replace device_tracker.my_phone by the tracker of the companion app.
rest_command:
  waylog:
    url: "ADDRESS"
    method: post
    content_type: "application/json"
    payload: >-
      {"type": "update_location", "data": {"gps": [{{ lat }}, {{ lon }}],
      "gps_accuracy": {{ accuracy }}}}
automation:
  - alias: "Positions to Waylog"
    mode: queued
    triggers:
      - trigger: state
        entity_id: device_tracker.my_phone
    conditions: "{{ trigger.to_state.attributes.latitude is defined }}"
    actions:
      - action: rest_command.waylog
        data:
          lat: "{{ trigger.to_state.attributes.latitude }}"
          lon: "{{ trigger.to_state.attributes.longitude }}"
          accuracy: "{{ trigger.to_state.attributes.gps_accuracy | default(0) }}"
"""

#: By the names that `POST /v1/device-tokens` takes.
SETUPS: Final[dict[str, Callable[[Platform, PhoneDevice], AppSetup]]] = {
    "owntracks_mqtt": _owntracks_mqtt,
    "owntracks_http": _owntracks_http,
    "overland": _overland,
    "traccar": _traccar,
    "gpslogger": _gpslogger,
    "home_assistant": _home_assistant,
    "colota": _colota,
}


def _by_link(app: str, link: str) -> AppSetup:
    return AppSetup(app, link=link, qr_code=qr_picture(link).decode())
