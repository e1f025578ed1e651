"""Addresses, property files and the folders of one installation."""

from __future__ import annotations

import argparse
import ipaddress
import math
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_HTTP = "127.0.0.1:8080"
DEFAULT_MQTT = "127.0.0.1:1883"
DEFAULT_DATA = "data"

#: The Arrow memory pool of jobs over the whole history, unless the environment sets one. Arrow's
#: default pool keeps the memory it has freed, 120 MiB in the places job; it is faster for many
#: repetitions of a small query.
ARROW_MEMORY_POOL = ("ARROW_DEFAULT_MEMORY_POOL", "system")


class _Default(str):
    """The value of an option that was not given, even if somebody gives the same one."""

    __slots__ = ()


DEFAULT_BOOTSTRAP_SERVERS = _Default("127.0.0.1:9092")


class ConfigError(ValueError):
    """A setting is wrong; the message says which, where it is and what is allowed."""


@dataclass(frozen=True)
class Endpoint:
    """A host and a TCP port. With port 0 the system chooses one when listening begins."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def bound_to(self, address: Endpoint) -> Endpoint:
        """Return how to reach a listener of this endpoint that is bound to an address.

        The port is the actual one, and so is the host if this endpoint has none.
        """
        return Endpoint(self.host or address.host, address.port)


def parse_endpoint(text: str) -> Endpoint:
    """Parse `HOST:PORT`, `:PORT` (loopback) or `[IPV6]:PORT`; raises ConfigError."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ConfigError(
            f"{text!r} is not an address: HOST:PORT is expected, as in 127.0.0.1:8080"
        )
    return Endpoint(host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port))


def is_address(host: str) -> bool:
    """Tell whether a host is an IP address, and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def local_url(endpoint: Endpoint) -> str:
    """Return the URL of an HTTP listener for a browser on the same machine."""
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 compared with, not listened on
    return f"http://{Endpoint(loopback.get(endpoint.host, endpoint.host), endpoint.port)}"


def check_bootstrap_servers(text: str) -> None:
    """Raise ConfigError unless the text is HOST:PORT,HOST:PORT..."""
    for word in text.split(","):
        address = word.strip().rpartition("://")[2]
        try:
            endpoint = parse_endpoint(address)
        except ConfigError:
            endpoint = None
        if endpoint is None or not endpoint.host or not 0 < endpoint.port < 65536:
            raise ConfigError(f"--bootstrap-servers {text}: HOST:PORT,HOST:PORT... is expected")


def check_name(option: str, text: str) -> None:
    """Raise ConfigError for an empty name, or white space at one of its ends."""
    if not text or text != text.strip():
        raise ConfigError(f"{option} {text!r}: a name is expected")


def check_finite(arguments: argparse.Namespace, *options: str) -> None:
    """Raise ConfigError for an option whose number is infinite or not a number."""
    for option in options:
        value = getattr(arguments, option.removeprefix("--").replace("-", "_"))
        if not math.isfinite(value):
            raise ConfigError(f"{option} {value}: a finite number is expected")


def http_url(text: str) -> str:
    """Return the URL of a server without a slash at its end; raises ConfigError."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{text}: http://HOST:PORT or https://HOST is expected")
    return text.rstrip("/")


def load_properties(path: Path) -> dict[str, str]:
    """Read `name=value` lines as in Kafka's server.properties; raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is no text file in UTF-8 with lines name=value") from error
    return parse_properties(text, path)


def parse_properties(text: str, path: Path) -> dict[str, str]:
    """Return the properties in the text of a file; raises ConfigError."""
    properties: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        name, separator, value = stripped.partition("=")
        if not separator:
            raise ConfigError(f"{path}, line {number}: expected name=value, found {stripped!r}")
        properties[name.strip()] = value.strip()
    return properties


def save_properties(path: Path, properties: dict[str, str]) -> None:
    """Write a property file that `load_properties` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    path.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class DataDirectory:
    """The files and folders of an installation: data to keep, and data that can be rebuilt."""

    root: Path

    @classmethod
    def default(cls) -> DataDirectory:
        """Return the directory $WAYLOG_DATA, else `data` in the current directory."""
        return cls(Path(os.environ.get("WAYLOG_DATA", DEFAULT_DATA)))

    @property
    def broker(self) -> Path:
        """The folder that holds one folder for each broker."""
        return self.root / "broker"

    @property
    def users(self) -> Path:
        """The database of users and tokens."""
        return self.root / "users.db"

    @property
    def master_key(self) -> Path:
        """The key that wraps the keys of sealed values, readable by the owner alone."""
        return self.root / "master.key"

    @property
    def demo_token(self) -> Path:
        """The demo user's password, readable by the owner alone."""
        return self.root / "demo.token"

    @property
    def temporary(self) -> Path:
        """Temporary files of jobs; emptied at every start of the platform."""
        return self.root / "tmp"

    @property
    def metrics_token(self) -> Path:
        """The token for Prometheus, readable by the owner alone."""
        return self.root / "metrics.token"

    @property
    def http_url(self) -> Path:
        """The file with the platform's URL for browsers; it exists while the platform runs."""
        return self.root / "http.url"

    @property
    def history_url(self) -> Path:
        """The file with the folder or URL to which `waylog up` lets its history job write."""
        return self.root / "history.url"

    @property
    def history(self) -> Path:
        """Parquet of topic `location`."""
        return self.root / "history"

    @property
    def places(self) -> Path:
        """Parquet of favourite places."""
        return self.root / "places"

    @property
    def views(self) -> Path:
        """Saved state of gateways, so that they need not read the log again."""
        return self.root / "views"

    @property
    def bridge(self) -> Path:
        """Saved state of bridges, one folder for each client id."""
        return self.root / "bridge"

    @property
    def logs(self) -> Path:
        """The output of the processes, one file each."""
        return self.root / "logs"


def read_http_url(data: DataDirectory) -> str | None:
    """Return the URL of the platform that runs on a data directory, None if none does."""
    return _read_line(data.http_url)


def find_history(data: DataDirectory) -> str | None:
    """Return the folder or URL of the history of a data directory, None if it has none.

    It is there before its job has written anything.
    """
    return _read_line(data.history_url) or (str(data.history) if data.history.is_dir() else None)


def _read_line(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
