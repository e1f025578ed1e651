"""OwnTracks' JSON, for its Recorder, for Dawarich and for Home Assistant's OwnTracks webhook.

Sources: the OwnTracks booklet, "JSON"; the Recorder's `/pub?u=USER&d=DEVICE`; Home Assistant's
integration, which ignores a location without an accuracy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from consumers.connect.data.positions import Position
from consumers.connect.data.records import SinkRecord
from consumers.connect.http.answers.answer import Answer
from consumers.connect.http.templates.device_names import DeviceNames
from consumers.connect.http.templates.judging import is_json
from consumers.connect.http.templates.positions import known, position_of, rounded
from consumers.connect.http.templates.request import Request
from consumers.connect.http.templates.template import PositionTemplate, with_path, with_query

_JSON: Final = {"Content-Type": "application/json"}
_KMH: Final = 3.6
#: What Home Assistant's GPSLogger integration assumes, too, for an accuracy that is unknown.
_UNKNOWN_ACCURACY_M: Final = 200


def location(fix: Position, name: str, **more: Any) -> dict[str, Any]:
    """Return a `_type: location`: whole seconds, speed in km/h."""
    return known(
        _type="location",
        tid=name[-2:],
        lat=fix.lat,
        lon=fix.lon,
        tst=fix.time // 1000,
        acc=rounded(fix.accuracy),
        alt=rounded(fix.altitude),
        vac=rounded(fix.vertical_accuracy),
        vel=rounded(None if fix.speed is None else fix.speed * _KMH),
        cog=rounded(fix.course),
        batt=rounded(fix.battery),
        bs=None if fix.charging is None else 1 + fix.charging,
        t=fix.trigger,
        **more,
    )


class OwnTracks(PositionTemplate):
    """What the classes below have in common: one position a request, answered with JSON."""

    def is_answer(self, answer: Answer) -> bool:
        """See PositionTemplate."""
        return is_json(answer)

    def request(self, records: Sequence[SinkRecord]) -> Request:
        """See Template."""
        fix = position_of(records[0])
        user, _, name = self._names.get(fix.device, fix.device).rpartition("/")
        return self.message(fix, user or fix.user, name)

    @abstractmethod
    def message(self, fix: Position, user: str, name: str) -> Request:
        """Return the request for a position of a user's device."""


class OwnTracksRecorder(OwnTracks):
    """To the Recorder's `/pub`, which answers with a list of friends, or an object with one."""

    server = "the Recorder"

    def __init__(self, url: str, names: DeviceNames) -> None:
        super().__init__(with_path(url, "/pub"), names)

    def message(self, fix: Position, user: str, name: str) -> Request:
        """See OwnTracks."""
        url = with_query(self._url, urlencode({"u": user, "d": name}))
        return Request("POST", url, msgspec.json.encode(location(fix, name)), _JSON)


class DawarichOwnTracks(OwnTracks):
    """To Dawarich's endpoint for OwnTracks."""

    server = "Dawarich"

    def __init__(self, url: str, names: DeviceNames) -> None:
        super().__init__(with_path(url, "/api/v1/owntracks/points"), names)

    def message(self, fix: Position, user: str, name: str) -> Request:
        """See OwnTracks."""
        body = location(fix, name, topic=f"owntracks/{user}/{name}")
        return Request("POST", self._url, msgspec.json.encode(body), _JSON)


class HomeAssistant(OwnTracks):
    """To `/api/webhook/ID` of Home Assistant's OwnTracks integration.

    It answers with a list. To an id that it does not know, as while it starts, Home Assistant
    answers with 200 and nothing.
    """

    server = "Home Assistant's OwnTracks integration"

    def message(self, fix: Position, user: str, name: str) -> Request:
        """See OwnTracks."""
        body = location(fix, name, topic=f"owntracks/{user}/{name}")
        body["acc"] = max(body.get("acc", _UNKNOWN_ACCURACY_M), 1)
        return Request("POST", self._url, msgspec.json.encode(body), _JSON)
