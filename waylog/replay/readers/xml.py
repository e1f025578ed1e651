"""Reads the elements of an XML file that may be larger than memory, as a stream."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from waylog.replay.readers.source import Source, UnreadableTrack


def elements(source: Source, *names: str) -> Iterator[Any]:
    """Yield each complete element with one of these names: local ones, or `{namespace}name`.

    Entities are not resolved and nothing external is loaded. Raises UnreadableTrack.
    """
    from lxml import etree

    with source.open() as stream:
        try:
            events = etree.iterparse(
                stream,
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


def number(text: str | None) -> float | None:
    """Return a finite number, or None."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
