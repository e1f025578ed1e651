"""A schema registry, and the broker that has its topic, in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.consumers.running import Broker, Process


class Registry:
    """A running `waylog schema-registry`."""

    def __init__(self, process: Process, url: str, bootstrap_servers: str) -> None:
        self.process = process
        self.url = url
        self.bootstrap_servers = bootstrap_servers


@contextmanager
def registry_on(bootstrap_servers: str, data: Path, *words: str) -> Iterator[Registry]:
    """Run a registry on a broker; everybody may write unless `words` say otherwise."""
    process = Process(
        *("schema-registry", "--listeners", "127.0.0.1:0", "--data", str(data)),
        *("--bootstrap-servers", bootstrap_servers),
        *(words or ("--open",)),
    )
    try:
        ready = process.wait_for(r"ready (https?://\S+)")
        yield Registry(process, ready.group(1), bootstrap_servers)
    finally:
        process.stop()


@contextmanager
def registry_with_broker(folder: Path) -> Iterator[Registry]:
    """Run a broker, and a registry on it."""
    broker = Broker(folder)
    try:
        with registry_on(broker.address, folder) as registry:
            yield registry
    finally:
        broker.process.stop()
