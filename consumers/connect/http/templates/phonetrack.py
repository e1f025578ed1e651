"""PhoneTrack of Nextcloud: many points of one device, to its `logPostMultiple/TOKEN`.

Source: PhoneTrack's LogController. A point is [lat, lon, seconds, altitude, accuracy, battery,
satellites, user agent, speed in m/s, course]; what is unknown is an empty text. `done` is 1 for
success, whatever the status.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from consumers.connect.data.positions import Position
from consumers.connect.data.records import SinkRecord
from consumers.connect.http.templates.device_names import DeviceNames
from consumers.connect.http.templates.positions import position_of
from consumers.connect.http.templates.request import Request
from consumers.connect.http.templates.template import PositionTemplate
from consumers.connect.http.templates.url_template import check_segment, path_segment
from waylog.malformed import MALFORMED

_JSON: Final = {"Content-Type": "application/json"}
_BATCH_RECORDS: Final = 100


class _Answer(msgspec.Struct):
    done: int


class PhoneTrack(PositionTemplate):
    """Positions of one device as rows; the device's name is the end of the path."""

    batch_records = _BATCH_RECORDS

    def __init__(self, url: str, names: DeviceNames) -> None:
        super().__init__(url.rstrip("/"), names)

    def target(self, record: SinkRecord) -> str:
        """See Template."""
        return position_of(record).device

    def request(self, records: Sequence[SinkRecord]) -> Request:
        """See Template."""
        fixes = [position_of(record) for record in records]
        device = fixes[0].device
        # A slash would be another level of the path, also where it is encoded.
        name = check_segment(path_segment(self._names.get(device, device.replace("/", "-"))))
        body = msgspec.json.encode({"points": [_row(fix) for fix in fixes]})
        return Request("POST", f"{self._url}/{name}", body, _JSON)

    def refusal(self, body: bytes) -> str | None:
        """See Template."""
        try:
            done = msgspec.json.decode(body, type=_Answer).done
        except MALFORMED:
            return "the answer is not PhoneTrack's"
        return None if done == 1 else f"PhoneTrack answers done={done}: is the token right?"


def _row(fix: Position) -> list[Any]:
    optional = (fix.altitude, fix.accuracy, fix.battery, None, "waylog", fix.speed, fix.course)
    values = ["" if each is None else each for each in optional]
    return [fix.lat, fix.lon, fix.time // 1000, *values]
