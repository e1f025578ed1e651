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
        "code": "Your code is {code}",
        "code_how": "Enter the code {code} on the page of Waylog within an hour, and you are told "
        "of your devices by e-mail. If you have not asked for it, ignore this message: nothing "
        "else will come.",
    },
    "de": {
        "enter": "{device} ist in {zone} angekommen",
        "leave": "{device} hat {zone} verlassen",
        "dwell": "{device} bleibt in {zone}",
        "silence": "{device} schweigt schon zu lange",
        "speeding": "{device} ist zu schnell",
        "meeting": "{device} trifft {other}",
        "test": "Ein Test: Hinweise kommen hier an",
        "code": "Ihr Code ist {code}",
        "code_how": "Geben Sie den Code {code} innerhalb einer Stunde auf der Seite von Waylog "
        "ein, dann erfahren Sie per E-Mail von Ihren Geräten. Haben Sie ihn nicht angefordert, "
        "können Sie diese Nachricht ignorieren: Es kommt keine weitere.",
    },
}


def text_of(kind: str, message: dict[str, Any], language: str) -> str:
    """Return a line for people about a notice."""
    device = str(message.get("device", "")).partition("/")[2]
    return _TEXTS[language][kind].format_map(
        {"device": device, "zone": message.get("fence", ""), "other": message.get("with", "")}
    )


def code_texts(code: str, language: str) -> tuple[str, str]:
    """Return subject and text of the message that has the code of a mailbox."""
    texts = _TEXTS[language]
    return texts["code"].format(code=code), texts["code_how"].format(code=code)
