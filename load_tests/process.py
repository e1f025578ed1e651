"""State shared by the users of one load generator process: options, numbers, results, the end."""

from __future__ import annotations

import argparse
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from load_tests import locust_statistics
from load_tests.account import DeviceAccount
from load_tests.outcome import Outcome, Second, SecondsRecorder
from waylog.process.file_limit import raise_file_limit

logger = logging.getLogger(__name__)

#: Distance between the ranges of device numbers of distributed workers.
WORKER_RANGE: Final = 1_000_000
DRAIN_S: Final = 60.0


def add_options(parser: Any) -> None:
    """Add our options to those of Locust."""
    # Only the parser itself accepts `is_secret`, a group does not.
    group = parser.add_argument_group("Waylog", "the platform and its devices")
    group.add_argument(
        "--devices", type=int, default=1000, help="devices of each FleetUser (default: 1000)"
    )
    group.add_argument(
        "--interval", type=float, default=5.0, help="seconds between two fixes of a device"
    )
    group.add_argument("--mqtt", default="127.0.0.1:1883", help="MQTT listener, HOST:PORT")
    group.add_argument("--gateway", default="http://127.0.0.1:8080", help="HTTP gateway, URL")
    group.add_argument("--device-user", default="load", help="the user whom all devices belong to")
    parser.add_argument(
        "--token", default="", help="that user's token", is_secret=True, env_var="WAYLOG_TOKEN"
    )
    group.add_argument(
        "--duration",
        type=float,
        default=0.0,
        help="seconds to send, not counting the time to connect; then wait for what is missing "
        "and quit (default: until Locust stops the users)",
    )
    group.add_argument("--out", default="", help="folder for the account and the latencies")
    group.add_argument("--run-id", default="", help="6 to 16 letters or digits; unlike all others")
    group.add_argument("--first-device", type=int, default=0, help="number of the first device")
    group.add_argument("--index", type=int, default=0, help="number of this process in --out")


class Process:
    """The state that all users of this process share; `environment.process` in Locust."""

    def __init__(self, environment: Any, options: argparse.Namespace) -> None:
        self.environment = environment
        self.options = options
        self.run_id = options.run_id or secrets.token_hex(4)
        self.token: str | None = options.token or None
        raise_file_limit()  # each device is a socket
        self.outcome = Outcome(run=self.run_id, protocol="")
        self.recorder = SecondsRecorder(self.outcome)
        self.finished = 0
        self._taken = 0
        self._accounts: list[Callable[[], list[DeviceAccount]]] = []
        self._cpu_began = 0.0
        self._written = False

    def take_numbers(self, count: int) -> int:
        """Reserve `count` device numbers; return the first of them."""
        worker = max(0, getattr(self.environment.runner, "worker_index", 0))
        first = int(self.options.first_device) + worker * WORKER_RANGE + self._taken
        self._taken += count
        self.outcome.devices += count
        return first

    def add_account(self, account: Callable[[], list[DeviceAccount]]) -> None:
        """Register a function that returns the devices' accounts at the end."""
        self._accounts.append(account)

    def began(self, moment: float, protocol: str) -> None:
        """Record that the first fix of a user is due at `moment`."""
        if not self.outcome.began:
            self._cpu_began = time.process_time()
        self.outcome.began = min(self.outcome.began or moment, moment)
        self.outcome.protocol = protocol

    def ended(self) -> None:
        """Record that the last fix of a user was due now."""
        self.outcome.ended = max(self.outcome.ended, time.time())
        self.outcome.cpu_s = time.process_time() - self._cpu_began

    def is_over(self, began: float) -> bool:
        """Return whether a schedule that began at this time is over."""
        return bool(self.options.duration) and time.time() >= began + self.options.duration

    def user_finished(self) -> None:
        """Record that a user has finished; the last one ends a run that has a duration."""
        self.finished += 1
        runner = self.environment.runner
        if self.options.duration and self.finished >= runner.target_user_count:
            import gevent

            # Not from a user's greenlet, because quit() waits for these.
            gevent.spawn(runner.quit)

    def report(self, second: Second, protocol: str, push_bytes: float = 0.0) -> None:
        """Add a second to Locust's statistics."""
        locust_statistics.add_batch(
            self.environment, protocol, "fix to acknowledgement", second.acknowledgements
        )
        locust_statistics.add_batch(
            self.environment, protocol, "fix to address", second.pushes, push_bytes
        )

    def write(self) -> None:
        """Write the account and the outcome, once."""
        if not self.options.out or self._written:
            return
        self._written = True
        accounts = [account for each in self._accounts for account in each()]
        self.outcome.write(
            Path(self.options.out), self.options.index, self.options.device_user, accounts
        )
        logger.info("account of %d devices written to %s", len(accounts), self.options.out)
