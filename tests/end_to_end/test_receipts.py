"""Fixes of several apps, followed through a whole platform to each place where they should be."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import paho.mqtt.client as paho
import pyarrow.parquet as pq
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.consumers.connect.connect_process import ConnectProcess
from tests.consumers.running import await_condition
from tests.end_to_end.running import WAYLOG, Platform, start_platform
from waylog.config import parse_endpoint
from waylog.history.history_reader import HistoryReader

pytestmark = pytest.mark.early

WAIT_S = 60
#: A zone in which it is about noon: the day of a run near midnight would be another at its end.
ZONE = f"Etc/GMT{time.gmtime().tm_hour - 12:+d}"


class Followed:
    """A platform whose history is written by one process, and a connector that writes a file."""

    def __init__(self, folder: Path) -> None:
        self.platform = start_platform(
            folder / "data", "--history-options=--engine arrow --trigger-seconds 0.3"
        )
        worker = folder / "worker"
        worker.mkdir()
        self.connect = ConnectProcess(worker, self.platform.kafka)
        self.connect.start()
        self.connect.create(
            "files",
            {
                "connector.class": "FileStreamSink",
                "topics": "location",
                "file": str(folder / "fixes.jsonl"),
            },
        )

    def stop(self) -> None:
        self.connect.stop()
        self.platform.stop()
        assert self.platform.process.stdout is not None
        self.platform.process.stdout.close()

    # --- sending --------------------------------------------------------------------------------

    def ask(self, path: str, body: Any = None, token: str | None = None) -> Any:
        """Return the JSON of an answer, None for an empty one."""
        login = base64.b64encode(f"demo:{token or self.platform.demo_token}".encode()).decode()
        data = body.encode() if isinstance(body, str) else body and json.dumps(body).encode()
        request = urllib.request.Request(
            self.platform.url + path, data, {"Authorization": f"Basic {login}"}
        )
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    # --- asking ---------------------------------------------------------------------------------

    def receipt(self, device: str) -> dict[str, Any]:
        """Return what the gateway answers."""
        path = f"/v1/devices/{quote(device, safe='')}/receipts"
        answer: dict[str, Any] = self.ask(f"{path}?day=today&tz={quote(ZONE)}")
        return answer

    def audit(self, *words: str) -> tuple[int, list[dict[str, Any]]]:
        """Return the exit status and the objects of `waylog audit`."""
        done = subprocess.run(
            [
                *(*WAYLOG, "audit", *words, "--timezone", ZONE, "--json"),
                *("--bootstrap-servers", self.platform.kafka),
            ],
            capture_output=True, text=True, timeout=WAIT_S, check=False,
            env=os.environ | {"WAYLOG_DATA": str(self.platform.data)},
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    running = Followed(tmp_path_factory.mktemp("receipts"))
    try:
        yield running
    finally:
        running.stop()


def taken(receipt: dict[str, Any]) -> dict[str, int]:
    return {each["name"]: each["taken"] for each in receipt["readers"]}


def knows_pushes(followed: Followed, device: str, told: dict[str, int]) -> bool:
    known = {each["channel"]: each["count"] for each in followed.receipt(device)["pushes"]}
    return all(known.get(channel, 0) >= count for channel, count in told.items())


def test_fixes_of_all_apps_are_followed_to_every_place(followed: Followed) -> None:
    now_s = int(time.time())
    gps = {"lat": 47.141, "lon": 9.521}
    senders: dict[str, Callable[[], object]] = {
        "own": lambda: followed.ask(
            "/v1/positions",
            [
                {"device": "own", **gps, "time": now_s * 1000 - 5_000 + n, "sequence": n}
                for n in (1, 2, 5)
            ],
        ),
        "tracks": lambda: followed.ask(
            "/owntracks?u=demo&d=tracks", {"_type": "location", "tst": now_s, "tid": "tr", **gps}
        ),
        "land": lambda: followed.ask(
            "/overland",
            {
                "locations": [
                    {
                        "type": "Feature",
                        "geometry": {"type": "Point", "coordinates": [9.521, 47.141]},
                        "properties": {
                            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s)),
                            "device_id": "land",
                        },
                    }
                ]
            },
        ),
        "osm": lambda: followed.ask(
            "/osmand?" + urlencode({"id": "osm", "timestamp": now_s, **gps})
        ),
        "mqtt": lambda: publish(followed, "mqtt", {**gps, "time": now_s * 1000}),
    }
    for send in senders.values():
        send()
    counts = {name: 3 if name == "own" else 1 for name in senders}
    readers = ("resolver", "connect-files", "history", "streams-geofences")

    def everywhere() -> bool:
        receipts = [followed.receipt(f"demo/{name}") for name in senders]
        return all(
            taken(each) == dict.fromkeys(readers, count)
            and each["resolved"] is not None
            # What is asked of a log is kept for some seconds.
            and not each["unknown"]
            for each, count in zip(receipts, counts.values(), strict=True)
        )

    await_condition(everywhere, WAIT_S, "all fixes everywhere")
    for name, count in counts.items():
        receipt = followed.receipt(f"demo/{name}")
        assert (receipt["acknowledged"], receipt["lacking"]) == (count, 0), receipt
        assert (receipt["repeats"], receipt["unknown"]) == (0, [])
        # The command says the same.
        status, (same,) = followed.audit("device", f"demo/{name}", "--late", "0s")
        assert status == 0
        # Of pushes the gateway knows more: those that it has not written to the log yet. Those that
        # it has just written it knows once it has read them.
        told = {each["channel"]: each["count"] for each in same.pop("pushes")}
        await_condition(partial(knows_pushes, followed, f"demo/{name}", told), WAIT_S, str(told))
        assert {each: receipt[each] for each in same} == same
    sequence = followed.receipt("demo/own")["sequence"]
    assert (sequence["gaps"], sequence["missing"]) == ([{"first": 3, "last": 4}], 2)
    assert followed.receipt("demo/osm")["sequence"] is None
    status, (*receipts, totals) = followed.audit("day")
    assert (status, totals["acknowledged"], totals["devices"]) == (0, sum(counts.values()), 5)
    assert [each["device"] for each in receipts] == sorted(f"demo/{name}" for name in senders)


def publish(followed: Followed, device: str, position: dict[str, Any]) -> None:
    client = mqtt_client(followed, "sender")
    client.publish(f"devices/demo/{device}/position", json.dumps(position), 1).wait_for_publish(
        WAIT_S
    )
    client.disconnect()
    client.loop_stop()


def mqtt_client(followed: Followed, name: str, *, manual: bool = False) -> paho.Client:
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id=name,
        protocol=MQTTProtocolVersion.MQTTv311,
        clean_session=False,
        manual_ack=manual,
    )
    client.username_pw_set("demo", followed.platform.demo_token)
    endpoint = parse_endpoint(followed.platform.mqtt)
    client.connect(endpoint.host, endpoint.port)
    client.loop_start()
    return client


def send_one(followed: Followed, device: str, number: int = 0) -> str:
    """Send a fix in our JSON; return its id."""
    position = {"device": device, "lat": 47.2, "lon": 9.5, "time": time.time_ns() // 10**6 + number}
    answer = followed.ask("/v1/positions", position)
    identity: str = answer["ids"][0]
    return identity


def test_a_sink_that_is_stopped_is_told_until_it_goes_on(followed: Followed) -> None:
    send_one(followed, "paused")
    await_condition(
        lambda: taken(followed.receipt("demo/paused")).get("connect-files") == 1, WAIT_S, "a fix"
    )
    assert followed.connect.ask("PUT", "/connectors/files/pause")[0] == 202
    followed.connect.await_states("files", "PAUSED", "PAUSED")
    identity = send_one(followed, "paused", 1)
    await_condition(
        lambda: taken(followed.receipt("demo/paused")).get("history") == 2,
        WAIT_S,
        "it in the history",
    )
    assert followed.audit("device", "demo/paused")[0] == 0  # it has an hour
    status, (receipt,) = followed.audit("device", "demo/paused", "--late", "0s")
    (sink,) = [each for each in receipt["readers"] if each["name"] == "connect-files"]
    assert (status, sink["taken"], sink["overdue"]) == (1, 1, 1)
    assert sink["until"] < sink["since"]
    status, (found,) = followed.audit("fix", identity, "--late", "0s")
    assert status == 1 and found["device"] == "demo/paused"
    assert followed.connect.ask("PUT", "/connectors/files/resume")[0] == 202
    await_condition(
        lambda: followed.audit("device", "demo/paused", "--late", "0s")[0] == 0, WAIT_S, "all taken"
    )


def test_a_refused_fix_and_a_lost_one_are_told(followed: Followed) -> None:
    identities = [send_one(followed, "lossy", number) for number in range(3)]
    followed.ask("/v1/positions", {"device": "lossy", "lat": 147.0, "lon": 9.5})
    await_condition(
        lambda: taken(followed.receipt("demo/lossy")).get("history") == 3, WAIT_S, "the history"
    )
    await_condition(lambda: followed.receipt("demo/lossy")["refused"], WAIT_S, "the refused one")
    receipt = followed.receipt("demo/lossy")
    (refused,) = receipt["refused"]
    assert refused["count"] == 1 and "positions: " in refused["reason"]
    assert receipt["acknowledged"] == 3
    lose(followed.platform, identities[1])
    status, (receipt,) = followed.audit("device", "demo/lossy")
    (history,) = [each for each in receipt["readers"] if each["name"] == "history"]
    assert (status, history["taken"], history["missing"]) == (1, 2, 1)
    await_condition(lambda: followed.receipt("demo/lossy")["lacking"] == 1, WAIT_S, "it is told")
    status, (*_, totals) = followed.audit("day")
    assert (status, totals["lacking"]) == (1, 1)


def lose(platform: Platform, identity: str) -> None:
    history = platform.data / "history"
    for file in HistoryReader(str(history)).files():
        table = pq.ParquetFile(history / file.path).read()
        kept = table.filter([each != identity for each in table["id"].to_pylist()])
        if kept.num_rows < table.num_rows:
            pq.write_table(kept, history / file.path)
            return
    pytest.fail(f"{identity} is in no file")


def test_what_mqtt_has_not_acknowledged_is_told(followed: Followed) -> None:
    client = mqtt_client(followed, "watcher", manual=True)
    arrived: dict[str, paho.MQTTMessage] = {}
    client.on_message = lambda _client, _data, message: arrived.update({message.topic: message})
    address, card = "devices/demo/pushed/address", "owntracks/demo/pushed/info"
    # Cards are not acknowledged either, and are not what is asked about.
    client.subscribe([(card, 1), (address, 1)])

    def pushed() -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = followed.receipt("demo/pushed")["pushed"]["mqtt"]
        return answer

    await_condition(pushed, WAIT_S, "the subscription")
    send_one(followed, "pushed")
    await_condition(lambda: arrived.keys() == {address, card}, WAIT_S, "address and card")
    told = {"client_id": "watcher", "connected": True, "qos": 1}
    assert pushed() == [told | {"waiting": 1}]
    client.ack(arrived[address].mid, 1)
    await_condition(lambda: pushed() == [told | {"waiting": 0}], WAIT_S, "it is acknowledged")
    client.disconnect()
    client.loop_stop()
    send_one(followed, "pushed", 1)
    away = told | {"connected": False, "waiting": 1}
    await_condition(lambda: pushed() == [away], WAIT_S, "it waits for the client")
    (mqtt,) = [each for each in followed.receipt("demo/pushed")["pushes"] if each["count"] == 2]
    assert mqtt["channel"] == "mqtt"


def test_receipts_are_for_the_owner(followed: Followed) -> None:
    status = []
    for path, token in (
        ("demo%2Fown/receipts", "wrong"),
        ("operator%2Fphone/receipts", None),
        ("demo%2Fown/receipts?day=soon", None),
        ("demo%2Fown/receipts?tz=Mars", None),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            followed.ask(f"/v1/devices/{path}", token=token)
        status.append(refused.value.code)
        refused.value.close()
    assert status == [401, 403, 400, 400]
