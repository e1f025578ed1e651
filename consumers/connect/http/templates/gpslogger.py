"""Home Assistant's GPSLogger webhook: a form.

Source: the integration's schema. It calls a device by its name without dashes, and answers with a
sentence. To an id that it does not know Home Assistant answers with 200 and nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from consumers.connect.data.records import SinkRecord
from consumers.connect.http.answers.answer import Answer
from consumers.connect.http.templates.judging import is_web_page
from consumers.connect.http.templates.positions import known, position_of
from consumers.connect.http.templates.request import Request
from consumers.connect.http.templates.template import PositionTemplate

_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


class HomeAssistantGpsLogger(PositionTemplate):
    """One position as a form."""

    server = "Home Assistant's GPSLogger integration"

    def is_answer(self, answer: Answer) -> bool:
        """See PositionTemplate."""
        return bool(answer.body.strip()) and not is_web_page(answer)

    def request(self, records: Sequence[SinkRecord]) -> Request:
        """See Template."""
        fix = position_of(records[0])
        form = urlencode(
            known(
                device=self._names.get(fix.device, fix.device.replace("/", "_")),
                latitude=repr(fix.lat),
                longitude=repr(fix.lon),
                accuracy=fix.accuracy,
                battery=fix.battery,
                speed=fix.speed,
                direction=fix.course,
                altitude=fix.altitude,
                provider="waylog",
            )
        )
        return Request("POST", self._url, form.encode(), _FORM)
