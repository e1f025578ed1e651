"""Fixes in the order in which a log has them: late ones, repeated ones, friends who are along."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from spark.fixes.fixes import to_degrees
from tests.consumers.streams.batch_jobs.geofences import depths_m
from tests.consumers.streams.batch_jobs.history import chords_m
from tests.consumers.streams.harness import BEGIN, make_fix
from tests.consumers.streams.tracks import geolife
from tests.spark.synthetic import make_person
from waylog.messages import Fix, fix_id

#: Where devices are that let the time of each partition go on at the end.
FAR: Final = (-60.0, 0.0)
_FAR_DEVICES: Final = 100
_DAY_S: Final = 86_400
#: After so long a trip has ended.
_SILENCE_S: Final = 20_000
#: Metres; a fix that is nearer to a decision is left out: planes differ by less.
_CLEAR_M: Final = 1.0
_METRE: Final = 1 / 111_195


@dataclass(frozen=True)
class Replay:
    """What is replayed."""

    fixes: list[Fix]
    fences: dict[str, dict[str, Any]]
    friends: list[tuple[str, str, int]]  # since when, ms
    zone: str
    #: Positions of one partition come so much later than those of another, in batches of hundreds.
    wait_s: str


def people() -> Replay:
    """Return four people who live for five days, whose phones send once in a minute or six."""
    chance = random.Random(1)
    tracks = []
    for number in range(4):
        own = make_person(number, days=5).fixes
        seconds, first = np.unique((own.time - BEGIN) // 1000, return_index=True)
        places = zip(
            seconds.tolist(),
            to_degrees(own.lat[first]).tolist(),
            to_degrees(own.lon[first]).tolist(),
            strict=True,
        )
        device = f"u{number}/phone"
        tracks.append([make_fix(*place, device=device) for place in places])
    return _replay(tracks, "Europe/Berlin", chance, wait_s="20000")


def loggers() -> Replay:
    """Return the loggers of GeoLife; skips the test without them."""
    return _replay(
        list(geolife(2000, every=3).values()), "Asia/Shanghai", random.Random(2), wait_s="1e7"
    )


def _replay(tracks: list[list[Fix]], zone: str, chance: random.Random, wait_s: str) -> Replay:
    friends = []
    for number, own in enumerate(tracks[:2]):
        user, friend = own[0].user, f"friend{number}"
        # One becomes a friend half way.
        friends.append((user, friend, own[len(own) // 2].time if number == 1 else 0))
        tracks.append(list(_along(own, f"{friend}/car", number)))
    tracks = [_measured(own, chance, says_speed=number % 2 == 0)
              for number, own in enumerate(tracks)]  # fmt: skip
    fences = _fences([fix for own in tracks for fix in own], chance)
    fixes = []
    for own in tracks:
        fixes += _clear(own, fences)
        last = fixes[-1]
        after = (last.time - BEGIN) / 1000 + _SILENCE_S
        fixes.append(make_fix(after, last.lat, last.lon, device=last.device))
    end = (max(fix.time for fix in fixes) - BEGIN) / 1000 + _DAY_S
    sent = [*_as_sent(fixes, chance)]
    sent += [make_fix(end, *FAR, device=f"far{n}/x") for n in range(_FAR_DEVICES)]
    return Replay(sent, fences, friends, zone, wait_s)


def _along(own: list[Fix], device: str, number: int) -> Iterable[Fix]:
    """Yield the fixes of somebody who is along, sometimes nearer than at others."""
    for fix in own[number :: 1 + number]:
        metres = (25, 25, 47, 53, 65, 250)[fix.time // 3_600_000 % 6]
        seconds = (fix.time - BEGIN) // 1000 + 1
        yield make_fix(seconds, fix.lat + metres * _METRE, fix.lon, device=device)


def _measured(own: list[Fix], chance: random.Random, *, says_speed: bool) -> list[Fix]:
    """Return the fixes with accuracies, and speeds if the device says some."""
    lats, lons = np.array([fix.lat for fix in own]), np.array([fix.lon for fix in own])
    seconds = np.diff([fix.time for fix in own], prepend=own[0].time - 1000) / 1000
    away = chords_m(lats, lons, np.roll(lats, 1), np.roll(lons, 1))
    found = []
    for fix, speed in zip(own, (away / seconds).tolist(), strict=True):
        accuracy = chance.choice([None, 4.0, 4.0, 12.0, 12.0, 12.0, 30.0, 90.0, 300.0])
        said = chance.choice([speed, speed, speed, None, -1.0, 9000.0]) if says_speed else None
        # Some jump as no vehicle does.
        lat = fix.lat + (0.5 if chance.random() < 0.002 else 0.0)
        found.append(replace(fix, lat=lat, accuracy=accuracy, speed=said))
    # A topology may forget a device whose only fix is known too roughly.
    found[0] = own[0]
    return found


def _fences(fixes: list[Fix], chance: random.Random) -> dict[str, dict[str, Any]]:
    fences: dict[str, dict[str, Any]] = {}
    for number in range(30):
        near = chance.choice(fixes)
        lat, lon, size = near.lat, near.lon, chance.choice([0.002, 0.01, 0.05])
        corners = [[lon - size, lat - size], [lon + size, lat - size], [lon, lat + size]]
        hole = [[lon - size / 4, lat - size / 4], [lon + size / 4, lat - size / 4], [lon, lat]]
        rings = [[*corners, corners[0]], [*hole, hole[0]]]
        shape: dict[str, Any] = chance.choice([
            {"circle": {"lat": lat, "lon": lon, "radius": size * 1e5}},
            {"polygon": {"type": "Polygon", "coordinates": rings}},
            {"corridor": {"line": {"type": "LineString", "coordinates": corners},
                          "width": size * 3e4}},
        ])  # fmt: skip
        more: dict[str, Any] = chance.choice(
            [{}, {"dwell": 900}, {"minimum": 300, "dwell": 200}, {"devices": [near.device]}]
        )
        fences[f"{chance.choice(['*', near.user])}/{number}"] = shape | more
    return fences


def _clear(own: list[Fix], fences: dict[str, dict[str, Any]]) -> list[Fix]:
    """Leave out what is so near to a decision that two computations may differ."""
    lats, lons = np.array([fix.lat for fix in own]), np.array([fix.lon for fix in own])
    accuracy = np.array([10.0 if fix.accuracy is None else fix.accuracy for fix in own])
    clear = np.ones(len(own), bool)
    for fence in fences.values():
        clear &= np.abs(np.abs(depths_m(fence, lats, lons)) - accuracy) > _CLEAR_M
    clear[0] = True
    return [fix for fix, is_clear in zip(own, clear.tolist(), strict=True) if is_clear]


def _as_sent(fixes: list[Fix], chance: random.Random) -> Iterable[Fix]:
    """Return the fixes in the order of their arrival; some are late, some come again."""
    first = {fix.device: fix.id for fix in reversed(fixes)}
    arriving = []
    for fix in fixes:
        late_s = chance.uniform(0, 15)
        if chance.random() < 0.02:
            late_s += chance.uniform(60, 900)
        if first[fix.device] == fix.id:
            late_s = 0.0
        arrival = fix.time + round(late_s * 1000)
        named = replace(fix, received=arrival, id=fix_id(fix.device, fix.time, fix.lat, fix.lon))
        arriving.append(named)
        if chance.random() < 0.02:
            arriving.append(replace(named, received=arrival + chance.randrange(600_000)))
    return sorted(arriving, key=lambda fix: fix.received)
