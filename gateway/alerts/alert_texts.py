"""What a notice says to people, for servers that take a text."""

from __future__ import annotations

from typing import Any, Final

_TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "enter": "{device} has entered {zone}",
        "leave": "{device} has left {zone}",
        "dwell": "{device} stays in {zone}",
        "silence": "{device} has been silent for too long",
        "speeding": "{device} is too fast",
        "meeting": "{device} meets {other}",
        "test": "A test: alerts arrive here",
    },
    "de": {
        "enter": "{device} ist in {zone} angekommen",
        "leave": "{device} hat {zone} verlassen",
        "dwell": "{device} bleibt in {zone}",
        "silence": "{device} schweigt schon zu lange",
        "speeding": "{device} ist zu schnell",
        "meeting": "{device} trifft {other}",
        "test": "Ein Test: Hinweise kommen hier an",
    },
}


def text_of(kind: str, message: dict[str, Any], language: str) -> str:
    """Return a line for people about a notice."""
    device = str(message.get("device", "")).partition("/")[2]
    return _TEXTS[language][kind].format_map(
        {"device": device, "zone": message.get("fence", ""), "other": message.get("with", "")}
    )
