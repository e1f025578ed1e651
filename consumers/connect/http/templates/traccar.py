"""Traccar: its OsmAnd protocol, as query and as JSON.

Source: Traccar's own decoder (OsmAndProtocolDecoder). Speed is in knots in the query and in m/s in
JSON; an unknown device is answered with 400 and 404, success with nothing or a command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

import msgspec

from consumers.connect.data.positions import iso_time
from consumers.connect.data.records import SinkRecord
from consumers.connect.http.templates.positions import known, position_of
from consumers.connect.http.templates.request import Request
from consumers.connect.http.templates.template import PositionTemplate, with_query

_KNOT: Final = 1852 / 3600  # m/s
#: Traccar takes a smaller number for seconds.
_SECONDS_BELOW: Final = 2**31
_JSON: Final = {"Content-Type": "application/json"}


class TraccarQuery(PositionTemplate):
    """One position in the query of a GET."""

    server = "Traccar"

    def request(self, records: Sequence[SinkRecord]) -> Request:
        """See Template."""
        fix = position_of(records[0])
        query = urlencode(
            known(
                id=self._names.get(fix.device, fix.device),
                lat=repr(fix.lat),
                lon=repr(fix.lon),
                timestamp=fix.time if fix.time >= _SECONDS_BELOW else iso_time(fix.time),
                speed=None if fix.speed is None else round(fix.speed / _KNOT, 3),
                bearing=fix.course,
                altitude=fix.altitude,
                accuracy=fix.accuracy,
                batt=fix.battery,
                charge=None if fix.charging is None else str(fix.charging).lower(),
            )
        )
        return Request("GET", with_query(self._url, query))


class TraccarJson(PositionTemplate):
    """One position as the JSON of Traccar Client 9."""

    server = "Traccar"

    def request(self, records: Sequence[SinkRecord]) -> Request:
        """See Template."""
        fix = position_of(records[0])
        battery = known(
            level=None if fix.battery is None else fix.battery / 100, is_charging=fix.charging
        )
        location = {
            "timestamp": iso_time(fix.time),
            "coords": known(
                latitude=fix.lat,
                longitude=fix.lon,
                accuracy=fix.accuracy,
                altitude=fix.altitude,
                speed=fix.speed,
                heading=fix.course,
            ),
        } | ({"battery": battery} if battery else {})
        body = {"location": location, "device_id": self._names.get(fix.device, fix.device)}
        return Request("POST", self._url, msgspec.json.encode(body), _JSON)
