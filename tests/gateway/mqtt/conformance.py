"""Other people's MQTT suites against our listener; docs/mqtt.md has what they say.

    python -m tests.gateway.mqtt.conformance --paho paho.mqtt.testing --testmqtt testmqtt/testmqtt

PAHO is a checkout of github.com/eclipse/paho.mqtt.testing, TESTMQTT the program that `go build .`
makes of github.com/bromq-dev/testmqtt. The suites want anonymous access and rights to everything
but `test/nosubscribe`. Exit status 1 when a test fails.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import threading
from pathlib import Path
from subprocess import STDOUT, TimeoutExpired, check_output, run

import uvloop

from gateway.mqtt.interfaces import Identity
from gateway.mqtt.listening.listener import start_mqtt
from gateway.mqtt.rights.acl import AccessRules
from gateway.mqtt.settings import Settings
from tests.gateway.mqtt.in_memory import Addresses, Locations, MemoryLog, Push, User
from waylog.config import Endpoint

_TEST_S = 120
_PAHO = """
import sys, unittest
sys.path.insert(0, {folder!r})
import {module} as suite
suite.host, suite.port, suite.topic_prefix = "127.0.0.1", {port}, "client_test5/"
levels = ("TopicA", "TopicA/B", "Topic/C", "TopicA/C", "/TopicA")
wild = ("TopicA/+", "+/C", "#", "/#", "/+", "+/+", "TopicA/#")
prefix = suite.topic_prefix if {version} == 5 else ""
suite.topics = [prefix + each for each in levels]
suite.wildtopics = [prefix + each for each in wild]
suite.nosubscribe_topics = ("test/nosubscribe",)
unittest.main(module=suite, argv=["suite", {test!r}])
"""


class Everything(AccessRules):
    """Rights to everything that the suites do."""

    def may_publish(self, identity: Identity, topic: str) -> bool:
        return not topic.startswith("$")

    def granted_filters(self, identity: Identity, topic_filter: str) -> tuple[str, ...]:
        return () if topic_filter == "test/nosubscribe" else (topic_filter,)


class Anybody:
    """Accepts every client as the same user."""

    async def authenticate(self, _user: str, _password: str, _address: str = "") -> User | None:
        return User("anonymous")

    async def authenticate_certificate(self, _name: str) -> User | None:
        return None


class Server(threading.Thread):
    """The listener, with an event loop in a thread of its own."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(daemon=True)
        self._settings = settings
        self._ready = threading.Event()
        self.port = 0
        self.start()
        self._ready.wait()

    def run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await start_mqtt(
            Endpoint("127.0.0.1", 0),
            submitter=MemoryLog(),
            authenticator=Anybody(),
            address_view=Addresses(),
            location_view=Locations(),
            pusher=Push(),
            settings=self._settings,
            rules=Everything(),
        )
        self.port = server.endpoint.port
        self._ready.set()
        await asyncio.Event().wait()


def paho(folder: Path, version: int) -> tuple[int, int, list[str]]:
    """Run paho.mqtt.testing, each test in a process of its own.

    Returns the number of passed tests, the number of all, and the names of those that failed.
    """
    module = "client_test5" if version == 5 else "client_test"
    source = (folder / f"{module}.py").read_text(encoding="utf-8")
    names = re.findall(r"^    def (test_?\w*)\(self", source, re.MULTILINE)
    server = Server(Settings(refusals_explained=False, keep_alive_max_s=60))
    failed = []
    for name in names:
        program = _PAHO.format(
            folder=str(folder),
            module=module,
            port=server.port,
            version=version,
            test=f"Test.{name}",
        )
        try:
            done = run(
                [sys.executable, "-c", program],
                capture_output=True,
                timeout=_TEST_S,
                check=False,
                cwd=folder,
            )
            passed = done.returncode == 0
        except TimeoutExpired:
            passed = False
        if not passed:
            failed.append(name)
    return len(names) - len(failed), len(names), failed


def testmqtt(program: Path, version: int) -> tuple[int, int, list[str]]:
    """Run testmqtt; return what `paho` returns."""
    server = Server(Settings())
    words = ["conformance", "--version", str(version), "--broker", f"tcp://127.0.0.1:{server.port}"]
    try:
        text = check_output([program, *words], stderr=STDOUT, timeout=900).decode()
    except Exception as error:
        text = (getattr(error, "output", None) or b"").decode()
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    passed = re.findall(r"^\s*✓", text, re.MULTILINE)
    failed = re.findall(r"^\s*✗\s*(.*)$", text, re.MULTILINE)
    return len(passed), len(passed) + len(failed), failed


def main() -> int:
    """Run the suites that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paho", type=Path, metavar="FOLDER")
    parser.add_argument("--testmqtt", type=Path, metavar="PROGRAM")
    parser.add_argument("--version", type=int, choices=(3, 5), action="append")
    arguments = parser.parse_args()
    good = True
    for version in arguments.version or (3, 5):
        for name, suite, place in (
            ("paho.mqtt.testing", paho, arguments.paho and arguments.paho / "interoperability"),
            ("testmqtt", testmqtt, arguments.testmqtt),
        ):
            if place is None:
                continue
            passed, count, failed = suite(place.resolve(), version)
            good = good and count > 0 and not failed
            print(f"{name}, MQTT {version}: {passed} of {count}", *failed, sep="\n  ", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
