"""PhoneTrack of Nextcloud: many points of one device, to its `logPostMultiple/TOKEN`.

Source: PhoneTrack's LogController. A point is [lat, lon, seconds, altitude, accuracy, battery,
satellites, user agent, speed in m/s, course]; what is unknown is an empty text. `done` is 1 for
success, and else a number that is about no single point: no token or a reserved name (0), no room
for more points (2), a locked session (3). Older versions give them with status 200, newer ones with
400 and 403. Points that it cannot read are left out without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from consumers.connect.data.positions import Position
from consumers.connect.data.records import SinkRecord
from consumers.connect.http.answers.answer import Answer, Objection
from consumers.connect.http.answers.status import Meaning
from consumers.connect.http.templates.device_names import DeviceNames
from consumers.connect.http.templates.judging import not_of
from consumers.connect.http.templates.positions import position_of
from consumers.connect.http.templates.request import Request
from consumers.connect.http.templates.template import PositionTemplate
from consumers.connect.http.templates.url_template import check_segment, path_segment
from waylog.malformed import MALFORMED

_JSON: Final = {"Content-Type": "application/json"}
_BATCH_RECORDS: Final = 100


#: What somebody may have to change, by `done`.
_HINTS: Final = {
    0: "is the token right, and the device's name not reserved?",
    2: "its owner may have no more points",
    3: "the session is locked",
}
#: Too large, for PHP or a proxy: half of the points may pass.
_TOO_LARGE: Final = 413


class _Answer(msgspec.Struct):
    done: int


class PhoneTrack(PositionTemplate):
    """Positions of one device as rows; the device's name is the end of the path."""

    batch_records = _BATCH_RECORDS
    server = "PhoneTrack"

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

    def objection(self, answer: Answer) -> Objection | None:
        """See Template."""
        if answer.status == _TOO_LARGE:
            return None
        try:
            done = msgspec.json.decode(answer.body, type=_Answer).done
        except MALFORMED:
            return not_of(self.server)
        if done == 1 and answer.is_success:
            return None
        hint = _HINTS.get(done, "its meaning is unknown")
        return Objection(Meaning.SET_UP, f"PhoneTrack answers done={done}: {hint}")


def _row(fix: Position) -> list[Any]:
    optional = (fix.altitude, fix.accuracy, fix.battery, None, "waylog", fix.speed, fix.course)
    values = ["" if each is None else each for each in optional]
    return [fix.lat, fix.lon, fix.time // 1000, *values]
