"""Reads the elements of an XML file that may be larger than memory, and what they describe."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Mapping
from typing import IO, Any

from waylog.replay.readers.recorded import (
    RecordedFix,
    attributes_of,
    charging_of,
    id_of,
    not_negative,
    others_of,
    trigger_of,
    typed,
)
from waylog.replay.readers.source import Source, UnreadableTrack


def elements(source: Source, *names: str) -> Iterator[Any]:
    """Yield each complete element with one of these names: local ones, or `{namespace}name`.

    Entities are not resolved and nothing external is loaded. Raises UnreadableTrack.
    """
    from lxml import etree

    with source.open() as stream:
        try:
            events = etree.iterparse(
                _Trimmed(stream),
                events=("end",),
                tag=[name if name.startswith("{") else f"{{*}}{name}" for name in names],
                # A source in UTF-16 is read as UTF-8, whatever its declaration says.
                encoding="utf-8" if source.is_transcoded() else None,
                resolve_entities=False,
                no_network=True,
                huge_tree=True,
            )
            for _, element in events:
                yield element
                element.clear(keep_tail=False)
                # Otherwise the parents keep empty elements: 100 bytes for each of millions.
                while element.getprevious() is not None:
                    parent = element.getparent()
                    if parent is None:
                        break
                    del parent[0]
        except etree.XMLSyntaxError as error:
            raise UnreadableTrack(f"{source}: {error}") from error


class _Trimmed:
    """A file without the white space before its first character, where XML allows none."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._has_begun = False

    def read(self, size: int = -1) -> bytes:
        """See io.RawIOBase."""
        read = self._stream.read(size)
        while not self._has_begun and read:
            mark = codecs.BOM_UTF8 if read.startswith(codecs.BOM_UTF8) else b""
            trimmed = read.removeprefix(mark).lstrip()
            if trimmed:
                self._has_begun = True
                return trimmed
            read = self._stream.read(size)
        return read


def number(text: str | None) -> float | None:
    """Return a finite number, or None."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def describe(fix: RecordedFix, values: Mapping[str, str], others: Mapping[str, str]) -> None:
    """Set the members that a file has beside place and time; `others` become attributes."""
    fix.speed = not_negative(number(values.get("speed")))
    fix.course = not_negative(number(values.get("course")))
    fix.accuracy = not_negative(number(values.get("accuracy")))
    fix.vertical_accuracy = not_negative(number(values.get("vertical_accuracy")))
    fix.battery = not_negative(number(values.get("battery")))
    fix.charging = charging_of(values.get("charging"))
    fix.trigger = trigger_of(values.get("trigger"))
    fix.id = id_of(values.get("id"))
    typed_others = {name: typed(text) for name, text in others.items()}
    fix.attributes = attributes_of(values.get("attributes")) or others_of(typed_others, ())
