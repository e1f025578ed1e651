"""GPX 1.1: a track with one segment; what is beyond place and time is in extensions."""

from __future__ import annotations

import re
from typing import Final

from consumers.connect.data.positions import WholePosition, iso_time
from consumers.connect.formats.track_format import TrackLine, id_of
from waylog.track_elements import GPX_HEAD, PLURALS, gpx_point, gpx_track

_LINE: Final = re.compile(
    r"<trkpt .*<time>([^<]*)</time>.*<waylog:id>([^<]*)</waylog:id>.*</trkpt>"
)


class Gpx:
    """The format."""

    suffix = ".gpx"
    separator = ""

    def head(self, device: str) -> str:
        """See TrackFormat."""
        return f"{GPX_HEAD}{gpx_track(device)}<trkseg>"

    def tail(self) -> str:
        """See TrackFormat."""
        return "</trkseg></trk></gpx>\n"

    def line(self, position: WholePosition) -> TrackLine:
        """See TrackFormat."""
        time, name = iso_time(position.time), id_of(position)
        more = {each: getattr(position, each) for each in PLURALS} | {"id": name}
        place = (position.lat, position.lon, position.altitude)
        # A line feed in a text would end the line.
        text = gpx_point(time, place, more).replace("\r", "&#13;").replace("\n", "&#10;")
        found = self.read(text)
        return TrackLine(time, name if found is None else found.id, text)

    def read(self, text: str) -> TrackLine | None:
        """See TrackFormat."""
        found = _LINE.fullmatch(text)
        return None if found is None else TrackLine(found[1], found[2], text)
