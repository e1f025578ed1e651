"""Authorization and headers of requests, for all that asks HTTP servers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from consumers.connect.configuration.definitions import (
    ConfigType,
    ConfigValue,
    Importance,
    grouped_key,
)
from consumers.connect.configuration.exceptions import hidden_value
from consumers.connect.configuration.validators import one_of

HEADERS: Final = "headers."
AUTHORIZATION: Final = "authorization.type"
USER: Final = "connection.user"
PASSWORD: Final = "connection.password"  # noqa: S105 - the name of the property
BEARER: Final = "bearer.token"
#: The group of the properties, as consoles show them.
LOGIN_GROUP: Final = "Authorization"

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_TEXT: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
#: Headers that the client writes itself.
_OURS: Final = frozenset({"content-length", "transfer-encoding", "connection", "host"})

LOGIN_KEYS: Final = (
    grouped_key(
        *(AUTHORIZATION, ConfigType.STRING, LOGIN_GROUP, 1),
        "How requests are authorized: none, basic or bearer.",
        importance=Importance.HIGH,
        default="none",
        validator=one_of("none", "basic", "bearer"),
    ),
    grouped_key(
        *(USER, ConfigType.STRING, LOGIN_GROUP, 2),
        "The user for basic.",
        importance=Importance.MEDIUM,
        default="",
    ),
    grouped_key(
        *(PASSWORD, ConfigType.PASSWORD, LOGIN_GROUP, 3),
        "The password for basic.",
        importance=Importance.MEDIUM,
        default=None,
    ),
    grouped_key(
        *(BEARER, ConfigType.PASSWORD, LOGIN_GROUP, 4),
        "The token for bearer.",
        importance=Importance.MEDIUM,
        default=None,
    ),
)


def login_contradictions(parsed: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return properties of the login that do not go with others, each with the reason."""
    found: list[tuple[str, str]] = []
    kind = parsed[AUTHORIZATION]
    if kind == "basic" and not parsed[USER]:
        found.append((USER, f"{AUTHORIZATION}=basic needs it"))
    if kind == "basic" and parsed[USER] and ":" in parsed[USER]:
        found.append((USER, "a user with a colon cannot be sent"))
    if kind == "bearer" and (parsed[BEARER] is None or not parsed[BEARER].value):
        found.append((BEARER, f"{AUTHORIZATION}=bearer needs it"))
    if kind == "bearer" and parsed[BEARER] is not None:
        problem = header_problem("Authorization", parsed[BEARER].value)
        if problem:
            found.append((BEARER, problem))
    return found


def authorization(parsed: Mapping[str, Any]) -> dict[str, str]:
    """Return the header by which requests are authorized, none without."""
    kind = parsed[AUTHORIZATION]
    if kind == "bearer":
        return {"Authorization": f"Bearer {parsed[BEARER].value}"}
    if kind == "basic":
        from aiohttp import encode_basic_auth

        password = "" if parsed[PASSWORD] is None else parsed[PASSWORD].value
        return {"Authorization": encode_basic_auth(parsed[USER], password, "utf-8")}
    return {}


def header_properties(properties: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and values of `headers.*`."""
    return [
        (name.removeprefix(HEADERS), str(value))
        for name, value in properties.items()
        if name.startswith(HEADERS)
    ]


def checked_headers(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that `headers.*` have; raises ConfigException."""
    headers = dict(header_properties(properties))
    for name, value in headers.items():
        problem = header_problem(name, value)
        if problem is not None:
            raise hidden_value(HEADERS + name, problem)
    return headers


def header_problem(name: str, value: str) -> str | None:
    """Return what is wrong with a header, None if it is right (RFC 9110, section 5)."""
    if not _TOKEN.fullmatch(name):
        return "it is no name of a header"
    if name.lower() in _OURS:
        return "the client writes this header itself"
    return None if HEADER_TEXT.fullmatch(value) else "control characters are not allowed"


def header_errors(properties: Mapping[str, Any]) -> dict[str, ConfigValue]:
    """Return what is wrong with `headers.*`, by the names of the properties."""
    found: dict[str, ConfigValue] = {}
    for name, value in header_properties(properties):
        problem = header_problem(name, value)
        if problem is not None:
            full = HEADERS + name
            found[full] = ConfigValue(name=full, errors=[str(hidden_value(full, problem))])
    return found
