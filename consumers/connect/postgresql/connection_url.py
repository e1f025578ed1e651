"""Where the database is: `connection.url` as libpq writes it, or with `jdbc:` before it.

A password has no place in it: the property is shown in answers and logs, `connection.password` is
not. No message of this module has any part of the URL, since a mistyped one may hold the password
anywhere.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from consumers.connect.configuration.exceptions import hidden_value

_SCHEMES: Final = ("postgresql", "postgres")
_JDBC: Final = "jdbc:"
_SECRETS: Final = frozenset({"password", "sslpassword", "passfile"})
_DEFAULT_PORT: Final = 5432
#: libpq gives up a connection attempt after this many seconds, and notices within half a minute
#: that a machine has vanished.
_DEFAULTS: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


def parse_url(name: str, url: str) -> dict[str, str]:
    """Return the parameters of a connection by libpq's names; raises ConfigException.

    Whether libpq knows a parameter behind the `?` is not looked at.
    """
    text = url.strip()
    if text.lower().startswith(_JDBC):
        text = text[len(_JDBC) :]
    try:
        parts = urlsplit(text)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise hidden_value(name, "it is not a URL") from None
    if parts.scheme.lower() not in _SCHEMES:
        raise hidden_value(name, "it has to begin with postgresql://, or with jdbc:postgresql://")
    user, colon, _ = parts.netloc.rpartition("@")[0].partition(":")
    parameters = dict(query)
    if colon or _SECRETS & {each.lower() for each in parameters}:
        raise hidden_value(
            name, "a password belongs into connection.password, where it is not shown"
        )
    hosts = parts.netloc.rpartition("@")[2]
    found = _hosts(name, hosts)
    if user:
        found["user"] = unquote(user)
    database = unquote(parts.path.removeprefix("/"))
    if database:
        found["dbname"] = database
    return _DEFAULTS | found | parameters


def shown_address(parameters: dict[str, Any]) -> str:
    """Return host, port and database for messages."""
    host = parameters.get("host") or "localhost"
    port = parameters.get("port") or _DEFAULT_PORT
    return f"{host}:{port}/{parameters.get('dbname') or parameters.get('user') or ''}"


def _hosts(name: str, text: str) -> dict[str, str]:
    """Return hosts and ports; libpq tries several, separated by commas, one after the other."""
    hosts, ports = [], []
    for each in text.split(","):
        if each.startswith("["):
            host, _, rest = each[1:].partition("]")
            port = rest.removeprefix(":")
        else:
            host, _, port = each.partition(":")
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise hidden_value(name, "the port is not a number from 1 to 65535")
        hosts.append(unquote(host))
        ports.append(port or str(_DEFAULT_PORT))
    return {"host": ",".join(hosts), "port": ",".join(ports)} if any(hosts) else {}
