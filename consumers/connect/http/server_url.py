"""The URL of a server that is asked over HTTP."""

from __future__ import annotations

from urllib.parse import SplitResult

from consumers.connect.configuration.exceptions import hidden_value
from consumers.connect.http.request_headers import PASSWORD, USER
from waylog.network.outbound.server_url import BadServerUrl, LoginInUrl, server_url


def parts_of_url(name: str, value: str) -> SplitResult:
    """Return the parts of the URL that property `name` has.

    Raises ConfigException, which shows nothing of the URL: it may have a token in it.
    """
    try:
        return server_url(value, ("http", "https"))
    except LoginInUrl:
        raise hidden_value(name, f"user and password belong into {USER} and {PASSWORD}") from None
    except BadServerUrl as error:
        raise hidden_value(name, str(error)) from None
