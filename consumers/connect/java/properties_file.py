"""Reads the text of a Java `.properties` file (`java.util.Properties.load`)."""

from __future__ import annotations

from typing import Final

_BLANK: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """The text is not that of a properties file."""


def parse_properties(text: str) -> dict[str, str]:
    """Return names and values; the last of several values of a name counts.

    Raises PropertiesError for an escape of a character that is not valid; the message does not
    show the line, which may hold a secret.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _end_of_name(line)
        start = end
        while start < len(line) and line[start] in _BLANK:
            start += 1
        if start < len(line) and line[start] in "=:":
            start += 1
            while start < len(line) and line[start] in _BLANK:
                start += 1
        properties[_unescape(line[:end])] = _unescape(line[start:])
    return properties


def _logical_lines(text: str) -> list[str]:
    """Return the lines without comments, those that end with a backslash joined to the next."""
    lines: list[str] = []
    continued = ""
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANK)
        if not continued and (not line or line[0] in "#!"):
            continue
        line = continued + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            continued = line[:-1]
        else:
            lines.append(line)
            continued = ""
    if continued:
        lines.append(continued)
    return lines


def _end_of_name(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            parts.append("" if character == "\\" else character)
            continue
        character = text[position]
        position += 1
        if character == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or any(each not in "0123456789abcdefABCDEF" for each in digits):
                raise PropertiesError("Malformed \\uxxxx encoding.")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(character, character))
    # Characters beyond 16 bits are written as two escapes.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
