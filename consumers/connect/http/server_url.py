"""The URL of a server that is asked over HTTP."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from consumers.connect.configuration.exceptions import hidden_value
from consumers.connect.http.request_headers import PASSWORD, USER


def parts_of_url(name: str, value: str) -> SplitResult:
    """Return the parts of the URL that property `name` has.

    Raises ConfigException, which shows nothing of the URL: it may have a token in it.
    """
    try:
        parts = urlsplit(value)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        raise hidden_value(name, "it is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port:
        raise hidden_value(name, "it has to be http://HOST/... or https://HOST/...")
    if "@" in parts.netloc:
        raise hidden_value(name, f"user and password belong into {USER} and {PASSWORD}")
    if not value.isascii() or any(each.isspace() for each in value):
        raise hidden_value(name, "spaces and characters beyond ASCII have to be percent-encoded")
    return parts
