"""Dawarich: many points in one request, to its `/api/v1/points`.

Source: Dawarich's `Points::Params`. It reads GeoJSON features with the properties of Overland, and
leaves out points without a time and those at 0/0. The key of its API goes as a bearer token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from consumers.connect.data.positions import Position, iso_time
from consumers.connect.data.records import SinkRecord
from consumers.connect.http.answers.answer import Answer
from consumers.connect.http.templates.device_names import DeviceNames
from consumers.connect.http.templates.judging import is_json
from consumers.connect.http.templates.positions import known, position_of
from consumers.connect.http.templates.request import Request
from consumers.connect.http.templates.template import PositionTemplate, with_path

_JSON: Final = {"Content-Type": "application/json"}
_PATH: Final = "/api/v1/points"
_BATCH_RECORDS: Final = 100


class Dawarich(PositionTemplate):
    """Positions as a list of features."""

    batch_records = _BATCH_RECORDS
    server = "Dawarich"

    def __init__(self, url: str, names: DeviceNames) -> None:
        super().__init__(with_path(url, _PATH), names)

    def request(self, records: Sequence[SinkRecord]) -> Request:
        """See Template."""
        features = [self._feature(position_of(record)) for record in records]
        return Request("POST", self._url, msgspec.json.encode({"locations": features}), _JSON)

    def is_answer(self, answer: Answer) -> bool:
        """See PositionTemplate."""
        return is_json(answer)

    def _feature(self, fix: Position) -> dict[str, Any]:
        charging = None if fix.charging is None else ("unplugged", "charging")[fix.charging]
        return {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [fix.lon, fix.lat]},
            "properties": known(
                timestamp=iso_time(fix.time),
                device_id=self._names.get(fix.device, fix.device),
                horizontal_accuracy=fix.accuracy,
                altitude=fix.altitude,
                vertical_accuracy=fix.vertical_accuracy,
                speed=fix.speed,
                course=fix.course,
                battery_level=None if fix.battery is None else fix.battery / 100,
                battery_state=charging,
            ),
        }
