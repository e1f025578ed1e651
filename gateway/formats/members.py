"""The members of one message: a format reads those it knows, and all others are kept.

A value is lost only if it says nothing (empty, or what an app writes for "unknown"). What a format
does not know, or cannot convert, stays among the others and becomes an attribute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

import msgspec

from gateway.formats.values import (
    SECRET_PARAMETERS,
    Unacceptable,
    device_text,
    number,
    text,
    without_tokens,
)
from waylog.messages import ATTRIBUTE_BYTES_MAX, ATTRIBUTE_NESTING_MAX, TRIGGER_CHARACTERS_MAX

ATTRIBUTES_MAX: Final = 64

#: Stands in place of a secret.
SECRET: Final = "[secret]"  # noqa: S105 what is written instead of one
#: Names of settings that are, or may contain, credentials: `password`, `encryptionKey`,
#: `tlsClientCrtPassword`, `httpHeaders`, ... They are compared without case and punctuation.
_SECRET_NAME: Final = re.compile(
    r".*(?:passw(?:or)?d|passphrase|passcode|secret|token|credentials?|authorization|cookie)s?"
    r"|.*(?:api|encryption|private|access|shared|secret)key|pass|pwd|key|httpheaders|.*pkcs(?:12)?"
)
_NOT_OF_A_NAME: Final = re.compile(r"[^a-z0-9]")
#: Credentials in a URL: before its host, or among its parameters.
_IN_URL: Final = re.compile(
    r"(?<=://)[^/?#@\s]+(?=@)"
    rf"|(?<=[?&])((?:{'|'.join(sorted(SECRET_PARAMETERS))}|pass|key)=)[^&#\s]+"
)

_Value = TypeVar("_Value")


def is_negative(value: object) -> bool:
    """Tell whether a value is a number below zero, which apps write for "unknown"."""
    found = number(value)
    return found is not None and found < 0


def first_value(
    values: Mapping[str, Any], names: Collection[str]
) -> tuple[str, Any] | tuple[None, None]:
    """Return the first of `names` that has a value, and the value."""
    for name in names:
        value = values.get(name)
        if value is not None and value != "":
            return name, value
    return None, None


class Members:
    """The members of a message, and which of them a format has read. Credentials are not kept."""

    __slots__ = ("_read", "_values")

    def __init__(self, values: Mapping[str, Any], not_kept: Collection[str] = ()) -> None:
        self._values = values
        self._read: set[str] = {*SECRET_PARAMETERS, *not_kept}

    def peek(self, *names: str) -> Any:
        """Return the value of the first of `names` that has one; it stays among the others."""
        return first_value(self._values, names)[1]

    def value(self, *names: str) -> Any:
        """Return the value of the first of `names` that has one, else None."""
        name, value = first_value(self._values, names)
        if name is not None:
            self._read.add(name)
        return value

    def read(
        self,
        convert: Callable[[object], _Value | None],
        *names: str,
        unknown: Callable[[object], bool] = is_negative,
    ) -> _Value | None:
        """Return the first of `names` that `convert` understands, else None.

        What it does not understand stays among the others, unless it means "unknown".
        """
        for name in names:
            value = self._values.get(name)
            if value is None or value == "":
                continue
            converted = convert(value)
            if converted is not None:
                self._read.add(name)
                return converted
            if unknown(value):
                self._read.add(name)
        return None

    def trigger(self, name: str) -> str | None:
        """Return why the app reported; what is too long for a trigger is kept whole, too."""
        value = self._values.get(name)
        found = text(value, TRIGGER_CHARACTERS_MAX)
        if found is not None and len(str(value).strip()) <= TRIGGER_CHARACTERS_MAX:
            self._read.add(name)
        return found

    def device(self, named_elsewhere: str | None, *names: str) -> str | None:
        """Return the device's name, unless it is named outside the message, which counts more."""
        if named_elsewhere is not None:
            return None
        return self.read(device_text, *names, unknown=lambda _: False)

    def unread(self) -> dict[str, Any]:
        """Return what has not been read, whole."""
        return {name: value for name, value in self._values.items() if name not in self._read}

    def others(self) -> dict[str, Any]:
        """Return what has not been read, within limits. Raises Unacceptable."""
        return other_members(self._values, self._read)


def other_members(members: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the members that a format does not map, within limits, so that no data is lost.

    Members that are too large (pictures) are named in `omitted`. Raises Unacceptable for nesting
    that is too deep.
    """
    others: dict[str, Any] = {}
    omitted: list[str] = []
    room = ATTRIBUTE_BYTES_MAX
    for name, value in members.items():
        if name in known or value is None or value == "":
            continue
        size, stored = _sized(value)
        size += len(name)
        if len(others) >= ATTRIBUTES_MAX or size > room:
            omitted.append(name[:100])
        else:
            room -= size
            others[name] = stored
    if omitted:
        others["omitted"] = omitted[:ATTRIBUTES_MAX]
    return others


def add_member(members: dict[str, Any], name: str, value: Any) -> None:
    """Add a member under a name that is still free, so that it replaces no other."""
    while name in members:
        name += "_"
    members[name] = value


def without_secrets(value: Any) -> Any:
    """Return a JSON value in which settings that may be credentials are replaced, at any depth."""
    if isinstance(value, dict):
        return {
            name: SECRET if _is_secret(name) and _says(each) else without_secrets(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    if isinstance(value, str):
        return _IN_URL.sub(lambda found: (found[1] or "") + SECRET, value)
    return value


def _says(value: object) -> bool:
    # A switch such as `usePassword` is no secret.
    return value is not None and value != "" and not isinstance(value, bool)


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.fullmatch(_NOT_OF_A_NAME.sub("", name.lower())) is not None


def _sized(value: Any) -> tuple[int, Any]:
    """Return the size of a value, and the value without tokens of the platform."""
    if isinstance(value, str):
        if "wl_" in value:
            value = without_tokens(value.encode("utf-8", "replace")).decode()
        return len(value), value
    if isinstance(value, dict | list):
        if _depth_exceeds(value, ATTRIBUTE_NESTING_MAX):
            raise Unacceptable(f"nested more than {ATTRIBUTE_NESTING_MAX} levels deep")
        encoded = msgspec.json.encode(value)
        if b"wl_" in encoded:
            value = msgspec.json.decode(without_tokens(encoded))
        return len(encoded), value
    return 8, value


def _depth_exceeds(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return False
    if levels == 0:
        return True
    return any(_depth_exceeds(item, levels - 1) for item in value)
