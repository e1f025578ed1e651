"""Processes and records for the tests of Spark jobs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Producer

from tests.ports import reserved_ports
from waylog.kafka.clients import producer_config
from waylog.kafka.topics import LOCATION
from waylog.messages import Fix, encode, fix_id

ROOT = Path(__file__).resolve().parents[2]


def child_jvm(process: int) -> int | None:
    """Return the JVM in a process's group."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            name = (folder / "comm").read_text().strip()
        except OSError:
            continue
        if name == "java" and int(fields[2]) == process:  # the process group
            return int(folder.name)
    return None


class Running:
    """A `waylog` command in a process group of its own, whose output is read continuously."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            self.command(arguments),
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._more = threading.Condition()
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def command(self, arguments: tuple[str, ...]) -> list[str]:
        """Return the command of the process."""
        return [sys.executable, "-m", "waylog.cli", *arguments]

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                with self._more:
                    self._lines.append(line)
                    self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    @property
    def said(self) -> str:
        """Return the output so far; all of it, once the process has ended."""
        with self._more:
            if self.process.poll() is not None:
                # The last lines may not have been read yet.
                self._more.wait_for(lambda: self._ended, 60)
            return "".join(self._lines)

    def await_line(self, pattern: str, times: int = 1, timeout_s: float = 120) -> str:
        """Wait for the n-th line that matches a pattern; return it."""

        def matching() -> list[str]:
            return [line for line in self._lines if re.search(pattern, line)]

        with self._more:
            self._more.wait_for(lambda: self._ended or len(matching()) >= times, timeout_s)
            found = matching()
            assert len(found) >= times, f"no line with {pattern!r}:\n{''.join(self._lines)}"
            return found[times - 1]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        # Kill its JVM and other helpers too, so that nothing can clean up.
        kill_group(self.process.pid)
        self.process.wait(200)

    def terminate(self, timeout_s: float = 60) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()


def kill_group(group: int) -> None:
    import os

    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def start_broker(folder: Path, port: int | None = None) -> tuple[Running, str]:
    """Start our broker; return its process and its address."""
    port = port or reserved_ports(1)[0]
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "broker.properties"
    config.write_text(
        f"node.id=0\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={folder}/logs\n"
        "log.cleaner.backoff.ms=1000\n"
    )
    broker = Running("broker", "--config", str(config))
    address = re.search(r"127\.0\.0\.1:\d+", broker.await_line("serves", timeout_s=120))
    assert address is not None
    return broker, address[0]


def make_fix(device: str, time: int, lat: float = 52.5, lon: float = 13.4) -> Fix:
    return Fix(
        id=fix_id(device, time, lat, lon),
        device=device,
        user=device.partition("/")[0],
        lat=lat,
        lon=lon,
        time=time,
        received=time + 250,
        accuracy=8.0,
        source="owntracks",
        attributes={"tid": "ab", "note": "Straße"},
    )


def append_fixes(servers: str, fixes: Iterable[Fix]) -> None:
    append_values(servers, ((fix.device.encode(), encode(fix)) for fix in fixes))


def append_values(servers: str, values: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    """Append records to topic `location`, and wait until all are acknowledged."""
    producer = Producer(producer_config(servers, "test"))
    failures: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    for key, value in values:
        producer.produce(LOCATION, value, key, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures
