"""Divides the text of a .proto file into tokens."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from waylog.serialization.serializer import SerializationError

_TOKEN: Final = re.compile(
    r"""(?P<space>[\s\ufeff]+|//[^\n]*|/\*.*?\*/)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>(?:0[xX][0-9a-fA-F]+|\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)[fF]?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[{}()\[\]<>;,=.:+\-/])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    rb"\\(?:([abfnrtv\\'\"?])|([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))",
    re.DOTALL,
)
_LETTERS: Final = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?",
}  # fmt: skip


class Token(NamedTuple):
    """A word, number, text or sign, and the line on which it stands."""

    kind: str  # name, number, text, sign or end
    text: str
    line: int


def tokens_of(source: str) -> list[Token]:
    """Return the tokens without comments, and one of kind `end`; raises SerializationError."""
    tokens, position, line = [], 0, 1
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            found = source[position : position + 20]
            raise SerializationError(f"line {line}: {found!r} is nothing of Protobuf's")
        text, kind = match[0], match.lastgroup or ""
        if kind != "space":
            tokens.append(Token(kind, text, line))
        line += text.count("\n")
        position = match.end()
    return [*tokens, Token("end", "", line)]


def unquoted(token: Token) -> bytes:
    """Return the bytes of a text; raises SerializationError."""

    def replaced(match: re.Match[bytes]) -> bytes:
        letter, octal, hexadecimal, short, long, other = match.groups()
        if letter is not None:
            return _LETTERS[letter]
        if octal is not None:
            return bytes([int(octal, 8) & 0xFF])
        if hexadecimal is not None:
            return bytes([int(hexadecimal, 16)])
        if other is not None:
            raise SerializationError(f"line {token.line}: \\ before {other!r} means nothing")
        try:
            return chr(int(short or long, 16)).encode()
        except ValueError:
            raise SerializationError(f"line {token.line}: no character of Unicode") from None

    return _ESCAPE.sub(replaced, token.text[1:-1].encode("utf-8", "replace"))


def integer(text: str) -> int:
    """Return the number that a token tells; raises ValueError for one with a fraction."""
    if text[:2].lower() == "0x":
        return int(text, 16)
    return int(text, 8) if len(text) > 1 and text[0] == "0" else int(text)
