"""Streaming over the elements of an XML file that may be larger than the memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from waylog.replay.readers.source import Source, UnreadableTrack


def elements(source: Source, *names: str) -> Iterator[Any]:
    """Yield each complete element with one of these local names, in any name space.

    Entities are not resolved and nothing is loaded from elsewhere. Raises UnreadableTrack.
    """
    from lxml import etree

    with source.open() as stream:
        try:
            events = etree.iterparse(
                stream,
                events=("end",),
                tag=[f"{{*}}{name}" for name in names],
                resolve_entities=False,
                no_network=True,
                huge_tree=True,
            )
            for _, element in events:
                yield element
                element.clear(keep_tail=False)
                # The parents keep empty elements otherwise: 100 bytes for each of millions.
                while element.getprevious() is not None:
                    parent = element.getparent()
                    if parent is None:
                        break
                    del parent[0]
        except etree.XMLSyntaxError as error:
            raise UnreadableTrack(f"{source}: {error}") from error


def number(text: str | None) -> float | None:
    """A finite number, or None."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
