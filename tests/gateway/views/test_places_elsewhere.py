"""Homes that a gateway reads from S3 are hidden from friends."""

from __future__ import annotations

import asyncio
import time

import pyarrow as pa
import pytest

from gateway.friends.friend_filter import FriendFilter
from gateway.views.places import Places, PlacesUnavailable
from gateway.views.places_file import FILE_NAME
from waylog.history.storage import Storage
from waylog.messages import Fix

HOME = 47.0, 9.0


def fix() -> Fix:
    now = time.time_ns() // 1_000_000
    lat, lon = HOME
    return Fix(id="1", device="ada/phone", user="ada", lat=lat, lon=lon, time=now, received=now)


async def test_homes_on_s3_are_hidden_and_without_an_answer_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("moto", reason="pip install 'waylog[test]' brings moto, an S3 server")
    from moto.server import ThreadedMotoServer

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    await asyncio.to_thread(server.start)
    try:
        host, port = server.get_host_and_port()
        options = f"scheme=http&endpoint_override={host}:{port}&region=us-east-1"
        url = f"s3://waylog/places?{options}&allow_bucket_creation=true"
        home = {"user": "ada", "device": "phone", "place_id": "a", "label": "home", "dwell_s": 1.0}
        table = pa.Table.from_pylist([home | {"lat": HOME[0], "lon": HOME[1]}])

        def write() -> None:
            storage = Storage(url)
            storage.open_folder()
            storage.write_parquet(FILE_NAME, table)

        await asyncio.to_thread(write)
        places = Places(url, homes_only=True)
        tell = FriendFilter(places, b"secret")
        places.on_change(tell.homes_changed)
        assert tell.fix(fix()) is None
        await places.refresh()
        told = tell.fix(fix())
        assert told is not None
        assert (told.lat, told.lon) != HOME
        # A folder without places is a valid answer.
        empty = Places(f"s3://nobody/places?{options}")
        await empty.refresh()
        assert empty.looked_up

        silent = Places("hdfs://127.0.0.1:1/places")
        with pytest.raises(PlacesUnavailable):
            await silent.refresh()
        assert FriendFilter(silent, b"secret").fix(fix()) is None
    finally:
        await asyncio.to_thread(server.stop)
