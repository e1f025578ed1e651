"""Locust users for Waylog. Run for example:

    locust -f load_tests/locustfile.py FleetUser --devices 5000 --interval 5 -u 1
    locust -f load_tests/locustfile.py HttpPhone -u 200 -r 50 --headless -t 60s

A FleetUser stands for thousands of MQTT devices, driven by one epoll loop in C; the other users are
one device each. One FleetUser per process is enough: use `--processes` for more. Latencies count
from the moment a fix was due, not from when it could be sent.
"""

from __future__ import annotations

import random
import time
from typing import Any

import gevent
import msgspec
from locust import FastHttpUser, User, constant, events, task
from locust.exception import StopUser

from load_tests import locust_statistics, mqtt_phone, process
from load_tests.account import DeviceAccount, PhoneAccount, device_name, fix_id
from load_tests.fleet import Fleet
from load_tests.outcome import Second
from waylog.config import parse_endpoint
from waylog.malformed import MALFORMED

SLICE_MS = 10
CONNECT_S = 120.0
BATCH_FIXES = 50
BACKOFF_MAX_S = 5.0


def on_init(environment: Any, **_: Any) -> None:
    """Create what the users of this process share."""
    environment.process = process.Process(environment, environment.parsed_options)
    if not environment.stop_timeout:
        # Sent fixes are still to be acknowledged when the test stops.
        environment.stop_timeout = process.DRAIN_S + 10
    gevent.spawn(cut_seconds, environment)


def on_test_stop(environment: Any, **_: Any) -> None:
    """Write the account."""
    environment.process.write()


def cut_seconds(environment: Any) -> None:
    """Report once a second what the phones driven from Python have measured."""
    while True:
        gevent.sleep(1)
        if environment.process.recorder.connected:
            environment.process.report(
                environment.process.recorder.cut(), environment.process.outcome.protocol
            )


# Locust's events have no type annotations.
_events: Any = events
_events.init_command_line_parser.add_listener(process.add_options)
_events.init.add_listener(on_init)
_events.test_stop.add_listener(on_test_stop)


class FleetUser(User):
    """`--devices` MQTT devices, each with a connection of its own."""

    wait_time = constant(0)

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.process: process.Process = environment.process
        self.fleet: Fleet | None = None
        self.began = 0.0
        self.next_report = 0.0
        self.seen: dict[str, int] = {}

    def on_start(self) -> None:
        options = self.process.options
        endpoint = parse_endpoint(options.mqtt)
        self.fleet = fleet = Fleet(
            endpoint.host,
            endpoint.port,
            devices=options.devices,
            rate=options.devices / options.interval,
            run=self.process.run_id,
            first_device=self.process.take_numbers(options.devices),
            user=options.device_user,
            password=self.process.token,
        )
        self.process.add_account(lambda: [DeviceAccount(*account) for account in fleet.accounts()])
        deadline = time.monotonic() + CONNECT_S
        while fleet.ready + fleet.refused < fleet.devices and time.monotonic() < deadline:
            fleet.step(SLICE_MS)
            gevent.sleep(0)
        if fleet.refused:
            self.fail("connect", "the gateway refuses the password", fleet.refused)
        self.began = fleet.begin()
        self.process.began(self.began, "MQTT")
        self.next_report = time.monotonic() + 1

    @task
    def drive(self) -> None:
        assert self.fleet is not None
        self.step(self.fleet)
        if self.process.is_over(self.began):
            raise StopUser

    def on_stop(self) -> None:
        fleet, self.fleet = self.fleet, None
        if fleet is None:
            return
        fleet.end()
        self.process.ended()
        deadline = time.monotonic() + process.DRAIN_S
        while not fleet.settled and not fleet.refused and time.monotonic() < deadline:
            self.step(fleet)
        # Wait a little for the addresses of the last fixes.
        deadline = min(deadline, time.monotonic() + 2)
        while fleet.pushes < fleet.acknowledged and time.monotonic() < deadline:
            self.step(fleet)
        self.report(fleet)
        self.process.outcome.due += fleet.due
        self.process.outcome.late += fleet.late
        self.process.outcome.resent += fleet.resent
        self.process.outcome.disconnects += fleet.disconnects
        self.process.outcome.requests += fleet.sent + fleet.resent
        fleet.close()
        self.process.user_finished()

    def step(self, fleet: Fleet) -> None:
        """Drive the fleet for a while, then let other greenlets run; report once a second."""
        fleet.step(SLICE_MS)
        if time.monotonic() >= self.next_report:
            self.next_report += 1
            self.report(fleet)
        gevent.sleep(0)

    def report(self, fleet: Fleet) -> None:
        """Add the counts since the last report to the statistics."""
        second = Second(
            time=time.time(),
            sent=self.since(fleet, "sent"),
            acknowledged=self.since(fleet, "acknowledged"),
            pushed=self.since(fleet, "pushes"),
            connected=fleet.ready,
            acknowledgements=fleet.take_acknowledgement_latencies(),
            pushes=fleet.take_push_latencies(),
        )
        outcome = self.process.outcome
        outcome.seconds.append(second)
        outcome.sent += second.sent
        outcome.acknowledged += second.acknowledged
        outcome.pushes += second.pushed
        push_bytes = self.since(fleet, "push_bytes")
        outcome.push_bytes += push_bytes
        self.process.report(second, "MQTT", push_bytes / max(1, second.pushed))
        lost_connections = self.since(fleet, "disconnects")
        if lost_connections:
            self.fail("connection", "the connection was lost", lost_connections)
        failures = self.since(fleet, "connect_failures")
        if failures:
            self.fail("connect", f"no connection (errno {fleet.last_errno})", failures)
        wrong = self.since(fleet, "protocol_errors")
        if wrong:
            self.fail("connection", "the gateway broke the protocol", wrong)

    def since(self, fleet: Fleet, name: str) -> int:
        """Return by how much a counter of the fleet has grown since the last call."""
        value = int(getattr(fleet, name))
        grown = value - self.seen.get(name, 0)
        self.seen[name] = value
        return grown

    def fail(self, name: str, error: str, count: int) -> None:
        self.process.outcome.failures += count
        locust_statistics.add_failures(self.environment, "MQTT", name, error, count)


class Phone:
    """One device driven from Python: its position, its schedule and its account."""

    #: Number of fixes that are sent together.
    fixes_a_message = 1

    def __init__(self, shared: process.Process) -> None:
        self.process = shared
        self.user = str(shared.options.device_user)
        number = shared.take_numbers(1)
        self.account = PhoneAccount(number)
        self.name = device_name(number)
        shared.add_account(lambda: [self.account.close()])
        place = random.Random(number)
        self.lat, self.lon = place.uniform(46, 54), place.uniform(6, 15)
        self.interval = float(shared.options.interval) * self.fixes_a_message
        runner = shared.environment.runner
        phones = max(1, runner.target_user_count)
        phase = (number - int(shared.options.first_device)) % phones / phones
        self.began = time.time()
        self.due = self.began + phase * self.interval
        shared.began(self.began, self.protocol)
        shared.recorder.connected += 1

    protocol = ""

    def wait(self) -> None:
        """Sleep until the next fix is due; raises StopUser at the end of the schedule."""
        options = self.process.options
        ends = self.began + options.duration if options.duration else float("inf")
        if self.due >= ends:
            gevent.sleep(max(0.0, ends - time.time()))
            raise StopUser
        gevent.sleep(max(0.0, self.due - time.time()))

    def next_fixes(self) -> tuple[float, list[int], list[dict[str, Any]]]:
        """Return the moment that is due now, the sequence numbers, and the fixes."""
        moment, self.due = self.due, self.due + self.interval
        if time.time() - moment > 0.1:
            self.process.outcome.late += self.fixes_a_message
        self.process.outcome.due += self.fixes_a_message
        sequences, fixes = [], []
        for index in range(self.fixes_a_message):
            sequence = self.account.send()
            self.lat += random.uniform(-0.0003, 0.0003)
            self.lon += random.uniform(-0.0003, 0.0003)
            back_s = self.interval * (self.fixes_a_message - 1 - index) / self.fixes_a_message
            fixes.append(
                {
                    "id": fix_id(self.process.run_id, self.account.device, sequence),
                    "device": self.name,
                    "lat": round(self.lat, 6),
                    "lon": round(self.lon, 6),
                    "time": int((moment - back_s) * 1000),
                    "accuracy": 8,
                    "battery": 100 - sequence % 90,
                }
            )
            sequences.append(sequence)
        self.process.recorder.fixes_sent(len(fixes))
        return moment, sequences, fixes

    def acknowledged(self, moment: float, sequences: list[int]) -> None:
        """Record that the platform has acknowledged these fixes."""
        for sequence in sequences:
            self.account.acknowledge(sequence)
        self.process.recorder.fixes_acknowledged(time.time() - moment, len(sequences))

    def finished(self) -> None:
        """Record that this phone sends nothing more."""
        self.process.ended()
        self.process.user_finished()


class MqttPhone(User):
    """One MQTT device on a greenlet of its own."""

    class State(Phone):
        protocol = "MQTT"

    wait_time = constant(0)

    def on_start(self) -> None:
        self.state = self.State(self.environment.process)
        self.pending: dict[int, tuple[float, int, bytes]] = {}
        # Due times by the fix's time, until its address arrives.
        self.moments: dict[int, float] = {}
        self.connection = mqtt_phone.MqttPhone(self.on_acknowledged, self.on_message)
        self.topic = f"devices/{self.state.user}/{self.state.name}"
        self.reader = gevent.spawn(self.keep_connected)

    @task
    def send(self) -> None:
        self.state.wait()
        moment, (sequence,), (fix,) = self.state.next_fixes()
        payload = msgspec.json.encode(fix)
        packet_id = 1 + sequence % 60_000
        self.pending[packet_id] = (moment, sequence, payload)
        self.moments[fix["time"]] = moment
        while len(self.moments) > 100:
            del self.moments[next(iter(self.moments))]
        self.publish(packet_id, payload)

    def publish(self, packet_id: int, payload: bytes, *, again: bool = False) -> None:
        try:
            self.connection.publish(f"{self.topic}/position", payload, packet_id, again=again)
            self.state.process.outcome.requests += 1
            self.state.process.outcome.resent += again
        except OSError:
            # The reader notices it, reconnects and sends all pending fixes again.
            self.connection.close()

    def keep_connected(self) -> None:
        endpoint = parse_endpoint(self.state.process.options.mqtt)
        backoff_s = 0.1
        while True:
            try:
                self.connection.connect(
                    endpoint.host,
                    endpoint.port,
                    client_id=f"{self.state.process.run_id}-{self.state.name}",
                    user=self.state.user,
                    password=self.state.process.token,
                    subscription=f"{self.topic}/address",
                )
                backoff_s = 0.1
                for packet_id, (_, _, payload) in list(self.pending.items()):
                    self.publish(packet_id, payload, again=True)
                self.connection.serve()
            except (OSError, mqtt_phone.ConnectionRefused) as error:
                self.state.process.outcome.failures += 1
                locust_statistics.add_failures(
                    self.environment, "MQTT", "connection", str(error), 1
                )
            gevent.sleep(backoff_s * random.uniform(0.5, 1))
            backoff_s = min(BACKOFF_MAX_S, 2 * backoff_s)

    def on_acknowledged(self, packet_id: int) -> None:
        entry = self.pending.pop(packet_id, None)
        if entry is not None:
            self.state.acknowledged(entry[0], [entry[1]])

    def on_message(self, payload: bytes) -> None:
        try:
            moment = self.moments.pop(msgspec.json.decode(payload)["time"], None)
        except (*MALFORMED, KeyError, TypeError):
            return
        if moment is not None:
            self.state.process.recorder.address_pushed(time.time() - moment, len(payload))

    def on_stop(self) -> None:
        deadline = time.time() + process.DRAIN_S
        while self.pending and time.time() < deadline:
            gevent.sleep(0.01)
        deadline = min(deadline, time.time() + 1)
        while self.moments and time.time() < deadline:
            gevent.sleep(0.01)
        self.reader.kill()
        self.connection.close()
        self.state.finished()


class HttpPhone(FastHttpUser):
    """One device that posts each fix in a request of its own."""

    class State(Phone):
        protocol = "HTTP"

    wait_time = constant(0)

    def __init__(self, environment: Any) -> None:
        self.host = environment.process.options.gateway.rstrip("/")
        super().__init__(environment)

    def on_start(self) -> None:
        self.state = self.State(self.environment.process)
        self.headers = {"Content-Type": "application/json", "Authorization": self.authorization()}

    def authorization(self) -> str:
        import base64

        pair = f"{self.state.user}:{self.state.process.token or ''}"
        return "Basic " + base64.b64encode(pair.encode()).decode()

    @task
    def send(self) -> None:
        self.state.wait()
        moment, sequences, fixes = self.state.next_fixes()
        body = msgspec.json.encode(fixes if len(fixes) > 1 else fixes[0]).decode()
        deadline, backoff_s = time.time() + process.DRAIN_S, 0.1
        while time.time() < deadline:
            self.state.process.outcome.requests += 1
            with self.client.post(
                "/v1/positions", data=body, headers=self.headers, catch_response=True
            ) as response:
                if response.status_code == 200:
                    answer = response.json()
                    if answer["accepted"] == len(fixes):
                        self.state.acknowledged(moment, sequences)
                        return
                    response.failure(f"rejected: {answer['rejected'][:1]}")
                    self.state.process.outcome.failures += 1
                    return
                response.failure(f"status {response.status_code}")
            self.state.process.outcome.failures += 1
            self.state.process.outcome.resent += len(fixes)
            gevent.sleep(backoff_s * random.uniform(0.5, 1))
            backoff_s = min(BACKOFF_MAX_S, 2 * backoff_s)

    def on_stop(self) -> None:
        self.state.finished()


class HttpBatch(HttpPhone):
    """One device that posts fifty fixes per request."""

    class State(Phone):
        protocol = "HTTP batch"
        fixes_a_message = BATCH_FIXES
