"""The main job, as a user does it: tracks in, addresses on the devices, history in Parquet.

While phones with three different apps send, the broker, the gateway and a resolver are killed with
SIGKILL.
"""

from __future__ import annotations

import base64
import csv
import gzip
import itertools
import json
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import paho.mqtt.client as mqtt
import pytest
from confluent_kafka import Consumer, TopicPartition
from paho.mqtt.enums import CallbackAPIVersion
from pyarrow import dataset

from geoservice.reverse.geocoder import Geocoder
from tests.apache_kafka import apache_kafka
from tests.consumers.running import await_condition
from tests.end_to_end.running import Platform
from waylog.kafka.clients import consumer_config
from waylog.kafka.polling import next_messages
from waylog.messages import Address, Fix, decode_address, decode_fix

pytestmark = pytest.mark.early

GEOLIFE = Path(__file__).parents[2] / "../shared/data/tracks/geolife_dev.csv.gz"


@dataclass(frozen=True)
class Phones:
    """A group of phones that send with one app."""

    user: str
    via: str
    format: str
    fixes: int


# An OwnTracks phone sends one fix a request and waits for the answer, so it gets the fewest.
PHONES = (
    Phones("anna", "mqtt", "owntracks", 9_000),
    Phones("ben", "http", "owntracks", 4_000),
    Phones("chen", "http", "overland", 9_000),
)


def geolife_rows() -> Iterator[dict[str, str]]:
    """Yield rows of real tracks; if they are absent, of walks to and fro between two towns."""
    if GEOLIFE.exists():
        with gzip.open(GEOLIFE, "rt", encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)
        return
    for number in range(11):
        start = datetime(2008, 5, 1, 6, tzinfo=UTC).timestamp()
        for step in range(3_000):
            # Half an hour at one place, then half an hour on the way to the other.
            hour, minute = divmod(step, 360)
            walked = max(0, minute - 180) / 180
            moved = 1 - walked if hour % 2 else walked
            moment = datetime.fromtimestamp(start + step * 10, UTC)
            yield {
                "uid": f"{number:03}",
                "lat": f"{39.9 + 0.02 * number + 0.01 * moved:.6f}",
                "lon": f"{116.3 + 0.01 * moved:.6f}",
                "alt_ft": "150",
                "ts": moment.strftime("%Y-%m-%d %H:%M:%S"),
            }


def write_tracks(folder: Path) -> dict[str, Path]:
    """Write a file of tracks for each user, with the fixes of eleven devices."""
    by_device: dict[str, list[dict[str, str]]] = {}
    for device, rows in itertools.groupby(geolife_rows(), key=lambda row: row["uid"]):
        # Enough for all three users, and consecutive, so that the tracks contain stays.
        by_device.setdefault(device, []).extend(itertools.islice(rows, 2_500))
    files: dict[str, Path] = {}
    taken = 0
    for phones in PHONES:
        each = -(-phones.fixes // len(by_device))
        files[phones.user] = folder / f"{phones.user}.csv.gz"
        with gzip.open(files[phones.user], "wt", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["uid", "lat", "lon", "alt_ft", "ts"])
            writer.writeheader()
            for track in by_device.values():
                writer.writerows(track[taken : taken + each])
        taken += each
    return files


def read_topic(bootstrap_servers: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Return every record of a topic, as (key, value)."""
    consumer = Consumer(consumer_config(bootstrap_servers, "test", "test-accounting"))
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        ends = {}
        for partition in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
            if high > low:
                ends[partition] = high
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        records = []
        while ends:
            for message in next_messages(consumer, 10_000, 1.0):
                assert message.error() is None
                records.append((message.key() or b"", message.value() or b""))
            for position in consumer.position([TopicPartition(topic, p) for p in ends]):
                if position.offset >= ends[position.partition]:
                    del ends[position.partition]
        return records
    finally:
        consumer.close()


def acknowledgements(platform: Platform, phones: Phones) -> Path:
    """Return the file with the acknowledged fixes of these phones."""
    return platform.data / f"{phones.user}.acknowledged"


def replay(platform: Platform, phones: Phones, track: Path, token: Path) -> dict[str, str]:
    """Send a file of tracks; return the acknowledged fixes, id -> device."""
    acknowledged = acknowledgements(platform, phones)
    platform.waylog(
        "replay", str(track), "--via", phones.via, "--format", phones.format,
        "--user", phones.user, "--token-file", str(token), "--gateway", platform.url,
        "--mqtt", platform.mqtt, "--acknowledged", str(acknowledged), "--json",
        timeout_s=170,
    )  # fmt: skip
    lines = [json.loads(line) for line in acknowledged.read_text().splitlines()]
    return {line["id"]: line["device"] for line in lines}


def retained_addresses(
    platform: Platform, user: str, token: str, wanted: Collection[str]
) -> dict[str, Address]:
    """Return what a phone that connects now gets on `devices/<user>/+/address`.

    It waits for the addresses of the wanted devices, and a moment for others.
    """
    received: dict[str, Address] = {}
    subscribed = threading.Event()

    def on_connect(client: mqtt.Client, *_: Any) -> None:
        client.subscribe([(f"devices/{user}/+/address", 1)])

    def on_subscribe(*_: Any) -> None:
        subscribed.set()

    def on_message(_client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        assert message.retain
        address = decode_address(bytes(message.payload))
        assert message.topic == f"devices/{address.device}/address"
        received[address.device] = address

    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
    client.on_connect, client.on_subscribe, client.on_message = on_connect, on_subscribe, on_message
    client.username_pw_set(user, token)
    host, _, port = platform.mqtt.rpartition(":")
    client.connect(host, int(port))
    client.loop_start()
    try:
        assert subscribed.wait(60)
        await_condition(lambda: received.keys() >= set(wanted), 60, f"addresses of {wanted}")
        quiet = -1
        while quiet != len(received):
            quiet = len(received)
            threading.Event().wait(0.5)
    finally:
        client.disconnect()
        client.loop_stop()
    return received


def get_json(platform: Platform, path: str, user: str, token: str) -> Any:
    request = urllib.request.Request(platform.url + path)
    credentials = base64.b64encode(f"{user}:{token}".encode()).decode()
    request.add_header("Authorization", f"Basic {credentials}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def parquet_ids(history: Path) -> list[str]:
    """Return the ids of all fixes in the history, as any reader of Parquet sees them."""
    if not any(history.glob("month=*/*.parquet")):
        return []
    files = [str(path) for path in history.glob("month=*/*.parquet")]
    ids: list[str] = dataset.dataset(files).to_table(columns=["id"])["id"].to_pylist()
    return ids


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_nothing_is_lost_when_broker_gateway_and_resolver_are_killed_while_phones_send(
    platform_starter: Callable[..., Platform], tmp_path: Path
) -> None:
    platform = platform_starter("--places-interval", "3600")
    main_job(platform, tmp_path, kill=("broker", "gateway-1", "resolver-1"))


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_same_holds_on_apache_kafka(
    platform_starter: Callable[..., Platform], tmp_path: Path
) -> None:
    with apache_kafka() as bootstrap_servers:
        platform = platform_starter(
            "--bootstrap-servers", bootstrap_servers, "--places-interval", "3600"
        )
        main_job(platform, tmp_path, kill=("gateway-1", "resolver-1"))


def main_job(platform: Platform, tmp_path: Path, kill: tuple[str, ...]) -> None:
    """Send the tracks, kill processes, and check where every fix went, on any Kafka."""
    tracks = write_tracks(tmp_path)
    tokens = {phones.user: platform.add_user(phones.user) for phones in PHONES}

    with ThreadPoolExecutor(len(PHONES)) as pool:
        replays = [
            pool.submit(replay, platform, phones, tracks[phones.user], tokens[phones.user])
            for phones in PHONES
        ]
        # Kill only then: phones that have never got through give up at once.
        await_condition(
            lambda: all(
                file.exists() and file.stat().st_size
                for file in (acknowledgements(platform, phones) for phones in PHONES)
            ),
            120,
            "first acknowledgements",
        )
        for name in kill:
            threading.Event().wait(1.5)  # let the phones go on before the next process is killed
            platform.kill(name)
        acknowledged: dict[str, str] = {}
        for each in replays:
            acknowledged |= each.result()

    sent = sum(len(gzip.decompress(path.read_bytes()).splitlines()) - 1 for path in tracks.values())
    assert sent >= 20_000
    assert len(acknowledged) == sent, "every fix is acknowledged in the end"

    fixes = [decode_fix(value) for _, value in read_topic(platform.kafka, "location")]
    times_in_log = Counter(fix.id for fix in fixes)
    assert set(acknowledged) - set(times_in_log) == set(), "acknowledged, then lost"
    assert {id_: n for id_, n in times_in_log.items() if n > 1} == {}, "in the log more than once"

    newest: dict[str, Fix] = {}
    for fix in fixes:
        if fix.device not in newest or fix.time > newest[fix.device].time:
            newest[fix.device] = fix
    geocoder = Geocoder.open()
    for phones in PHONES:
        token = tokens[phones.user].read_text().strip()
        mine = {device: fix for device, fix in newest.items() if fix.user == phones.user}
        assert len(mine) == 11
        await_addresses(platform, mine, phones.user, token)
        retained = retained_addresses(platform, phones.user, token, mine)
        assert retained.keys() == mine.keys()
        for device, fix in mine.items():
            fresh = geocoder.reverse(fix.lat, fix.lon)
            assert retained[device].fix_id == fix.id
            assert retained[device].display_name == fresh.display_name
            over_http = get_json(
                platform, f"/v1/devices/{quote(device, safe='')}/address", phones.user, token
            )
            assert over_http["fix_id"] == fix.id

    history = platform.data / "history"
    await_ids(history, len(times_in_log), platform)
    ids = parquet_ids(history)
    assert len(ids) == len(set(ids)), "a fix is in the history twice"
    assert set(ids) == set(times_in_log)

    assert platform.stop() == 0
    places = tmp_path / "places"
    platform.waylog(
        "places", "run", "--once", "--history", str(history), "--out", str(places), timeout_s=300
    )
    shown = platform.waylog("places", "show", "--places", str(places), "--json")
    rows = json.loads(shown) if shown.lstrip().startswith("[") else [
        json.loads(line) for line in shown.splitlines()
    ]  # fmt: skip
    assert rows, "no places found"
    assert {"user", "place_id", "lat", "lon", "label", "name", "visits", "dwell_s", "address"} <= (
        rows[0].keys()
    )


def await_addresses(platform: Platform, newest: dict[str, Fix], user: str, token: str) -> None:
    """Wait until the resolver has caught up with the newest fix of every device."""

    def caught_up() -> bool:
        return all(
            get_json(platform, f"/v1/devices/{quote(device, safe='')}/address", user, token)[
                "fix_id"
            ]
            == fix.id
            for device, fix in newest.items()
        )

    await_condition(caught_up, 60, f"addresses of {user}'s newest fixes")


def await_ids(history: Path, count: int, platform: Platform) -> None:
    """Wait until the history job has caught up with the log."""
    try:
        await_condition(lambda: len(parquet_ids(history)) >= count, 120, "history caught up")
    except BaseException:
        print(platform.logs())
        raise


def test_the_platform_starts_again_and_stays_small(
    platform_starter: Callable[..., Platform],
) -> None:
    first = platform_starter("--no-history")
    assert first.stop() == 0
    started = time.monotonic()
    second = platform_starter("--no-history", data=first.data)
    seconds = time.monotonic() - started
    resident = sum(resident_bytes(each["pid"]) for each in second.processes().values())
    resident += resident_bytes(second.process.pid)
    print(f"ready in {seconds:.1f} s, {resident / 1e6:.0f} MB resident")
    assert resident < 500e6


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, without its children."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096
