"""Addresses, property files and the folders of one installation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"
DEFAULT_HTTP = "127.0.0.1:8080"
DEFAULT_MQTT = "127.0.0.1:1883"
DEFAULT_DATA = "data"

#: Where jobs over the whole history have Arrow take memory from, unless the environment says
#: otherwise. Its own choice keeps what it has freed, 120 MiB of it in the places job; it is the
#: quicker one for the same small question again and again.
ARROW_MEMORY_POOL = ("ARROW_DEFAULT_MEMORY_POOL", "system")


class ConfigError(ValueError):
    """A setting is wrong; the message says which, where it stands and what is allowed."""


@dataclass(frozen=True)
class Endpoint:
    """A host and a TCP port. Port 0 lets the system choose when it is listened on."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Parse `HOST:PORT`, `:PORT` (loopback) or `[IPV6]:PORT`; raises ConfigError."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ConfigError(
            f"{text!r} is not an address: HOST:PORT is expected, as in 127.0.0.1:8080"
        )
    return Endpoint(host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port))


def local_url(endpoint: Endpoint) -> str:
    """The URL by which a browser on the same machine finds an HTTP listener."""
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 compared with, not listened on
    return f"http://{Endpoint(loopback.get(endpoint.host, endpoint.host), endpoint.port)}"


def check_bootstrap_servers(text: str) -> None:
    """Raises ConfigError unless it is HOST:PORT,HOST:PORT..."""
    for word in text.split(","):
        address = word.strip().rpartition("://")[2]
        try:
            endpoint = parse_endpoint(address)
        except ConfigError:
            endpoint = None
        if endpoint is None or not endpoint.host or not 0 < endpoint.port < 65536:
            raise ConfigError(f"--bootstrap-servers {text}: HOST:PORT,HOST:PORT... is expected")


def load_properties(path: Path) -> dict[str, str]:
    """Read `name=value` lines as in Kafka's server.properties; raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_properties(text, path)


def parse_properties(text: str, path: Path) -> dict[str, str]:
    """The properties in the text of a file; raises ConfigError."""
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
    """Where an installation keeps what it must not lose, and what it can rebuild."""

    root: Path

    @classmethod
    def default(cls) -> DataDirectory:
        """$WAYLOG_DATA, else `data` in the current directory."""
        return cls(Path(os.environ.get("WAYLOG_DATA", DEFAULT_DATA)))

    @property
    def broker(self) -> Path:
        """Parent of one folder a broker."""
        return self.root / "broker"

    @property
    def users(self) -> Path:
        """The database of users and tokens."""
        return self.root / "users.db"

    @property
    def master_key(self) -> Path:
        """What wraps the keys of sealed values, readable by the owner alone."""
        return self.root / "master.key"

    @property
    def demo_token(self) -> Path:
        """The demo user's password, readable by the owner alone."""
        return self.root / "demo.token"

    @property
    def temporary(self) -> Path:
        """What jobs write aside; emptied at every start of the platform."""
        return self.root / "tmp"

    @property
    def metrics_token(self) -> Path:
        """The token for Prometheus, readable by the owner alone."""
        return self.root / "metrics.token"

    @property
    def http_url(self) -> Path:
        """Where browsers find the platform; there as long as it runs."""
        return self.root / "http.url"

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
        """What gateways know, so that they need not read the log again."""
        return self.root / "views"

    @property
    def bridge(self) -> Path:
        """What bridges know, likewise, one folder for each client id."""
        return self.root / "bridge"

    @property
    def logs(self) -> Path:
        """What the processes print, one file each."""
        return self.root / "logs"


def read_http_url(data: DataDirectory) -> str | None:
    """Where browsers find the platform that runs on a folder; None if none does."""
    try:
        return data.http_url.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
