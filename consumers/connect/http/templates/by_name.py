"""The templates that `template` may name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from consumers.connect.http.templates.dawarich import Dawarich
from consumers.connect.http.templates.device_names import DeviceNames
from consumers.connect.http.templates.gpslogger import HomeAssistantGpsLogger
from consumers.connect.http.templates.owntracks import (
    DawarichOwnTracks,
    HomeAssistant,
    OwnTracksRecorder,
)
from consumers.connect.http.templates.phonetrack import PhoneTrack
from consumers.connect.http.templates.template import Template
from consumers.connect.http.templates.traccar import TraccarJson, TraccarQuery

OWN: Final = "none"

#: Each is made of the property `url` and the names of devices.
TEMPLATES: Final[dict[str, Callable[[str, DeviceNames], Template]]] = {
    "traccar": TraccarQuery,
    "traccar-json": TraccarJson,
    "dawarich": Dawarich,
    "dawarich-owntracks": DawarichOwnTracks,
    "home-assistant": HomeAssistant,
    "home-assistant-gpslogger": HomeAssistantGpsLogger,
    "phonetrack": PhoneTrack,
    "owntracks-recorder": OwnTracksRecorder,
}
#: Those that put several positions into one request.
BATCHING: Final = ("dawarich", "phonetrack")
