"""Builds the descriptions of single operations for the OpenAPI document."""

from __future__ import annotations

import re
from typing import Any, Final

#: What operations are about: the tags of the document.
SENDING: Final = "Sending"
READING: Final = "Reading"
GEOCODING: Final = "Geocoding"
SHARING: Final = "Sharing"
ACCOUNT: Final = "Accounts"
FORWARDING: Final = "Forwarding"
OWN_DATA: Final = "Import and export"
ZONES: Final = "Places and zones"
OPERATING: Final = "Operating"
LOG: Final = "The log (administrators)"


def names_in(path: str) -> tuple[str, ...]:
    """Return the names of the parts of a path that vary."""
    return tuple(re.findall(r"\{(\w+)\}", path))


def schema(name: str) -> dict[str, Any]:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(name: str) -> dict[str, Any]:
    """Return the schema of a list, whose items have a schema of the document."""
    return {"type": "array", "items": schema(name)}


def of_device(
    summary: str,
    *,
    query: tuple[str, ...] = (),
    answer: dict[str, Any] | None = None,
    media_types: tuple[str, ...] = ("application/json",),
) -> dict[str, Any]:
    """Describe an operation that reads something of a device."""
    return operation(
        READING, summary, path=("device",), query=query, answer=answer, media_types=media_types
    )


def nominatim(name: str, *query: str) -> dict[str, Any]:
    """Describe a Nominatim endpoint. Its responses, errors too, have the requested format."""
    others: tuple[str, ...] = ("text/xml", "text/plain")
    return operation(
        GEOCODING,
        f"Nominatim's {name}",
        query=query,
        media_types=("application/json", *others),
        error="GeocoderError",
        refusal_types=others,
    )


def operation(
    tag: str,
    summary: str,
    *,
    body: bool = False,
    path: tuple[str, ...] = (),
    query: tuple[str, ...] = (),
    answer: dict[str, Any] | None = None,
    media_types: tuple[str, ...] = ("application/json",),
    status: str = "200",
    public: bool = False,
    error: str = "Error",
    refusal_types: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Describe an operation.

    `media_types` are those of success, none for an empty body; `refusal_types` are those of errors
    beside JSON.
    """
    good: dict[str, Any] = {"description": "Done"}
    if status in ("200", "201", "202") and media_types:
        good["content"] = {each: {"schema": answer or {}} for each in media_types}
    refused = [schema(each) for each in dict.fromkeys(("Error", error))]
    shape = refused[0] if len(refused) == 1 else {"anyOf": refused}
    refusal: dict[str, Any] = {"content": {"application/json": {"schema": shape}}}
    refusal["content"] |= {each: {} for each in refusal_types}
    operation: dict[str, Any] = {
        "tags": [tag],
        "summary": summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in path
        ]
        + [{"name": name, "in": "query", "schema": {"type": "string"}} for name in query],
        "responses": {
            status: good,
            "4XX": {"description": "Refused; the reason is in `error`", **refusal},
            "5XX": {"description": "Not now; repeat", **refusal},
        },
    }
    if body:
        operation["requestBody"] = {"content": {"*/*": {"schema": {}}}}
    if public:
        operation["security"] = []
    return operation
