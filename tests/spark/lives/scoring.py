"""How well places, visits and labels agree with the truth about some lives."""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from spark.fixes.fixes import Fixes
from spark.places.finding import DevicePlaces, Place
from spark.places.stay_points import haversine_m
from tests.spark.lives.itinerary import MINUTE_MS, Life, Spot

# A place this near to a spot is that spot, seen from the way to it.
_AROUND_M: Final = 400.0
_VISIT_MIN_MS: Final = 10 * MINUTE_MS


def away_m(place: Place, spot: Spot) -> float:
    """Return how far a place lies from a spot of the truth."""
    return haversine_m(place.lat, place.lon, spot.lat, spot.lon)


def labelled(found: DevicePlaces, label: str) -> list[Place]:
    """Return the places with a label."""
    return [place for place in found.places if place.label == label]


class Tally:
    """Counts over several lives: hits of tries by name; a place is right within some metres."""

    def __init__(self, near_m: float = 100.0) -> None:
        self._near_m = near_m
        self.hits: Counter[str] = Counter()
        self.tries: Counter[str] = Counter()

    def count(self, name: str, hit: bool | np.bool_) -> None:
        self.tries[name] += 1
        self.hits[name] += bool(hit)

    def __getitem__(self, name: str) -> float:
        return self.hits[name] / self.tries[name] if self.tries[name] else float("nan")

    def __str__(self) -> str:
        return ", ".join(f"{name} {self[name]:.3f} of {self.tries[name]}" for name in self.tries)

    def add(self, life: Life, fixes: Fixes, found: DevicePlaces) -> None:
        """Count one life."""
        self._add_visits(life, fixes, found)
        self._add_places(life, fixes, found)
        self._add_labels(life, found)

    def _add_visits(self, life: Life, fixes: Fixes, found: DevicePlaces) -> None:
        start = np.array([visit.start for visit in life.visits])
        end = np.array([visit.end for visit in life.visits])
        covered, parts = np.zeros(len(start)), np.zeros(len(start), int)
        for visit in found.visits:
            overlap = np.minimum(end, visit.end) - np.maximum(start, visit.start)
            true = False
            for number in np.flatnonzero(overlap > 0).tolist():
                spot = life.spots[life.visits[number].spot]
                if haversine_m(visit.lat, visit.lon, spot.lat, spot.lon) <= self._near_m:
                    covered[number] += overlap[number]
                    mostly = overlap[number] >= 0.5 * (visit.end - visit.start)
                    true |= bool(mostly)
                    parts[number] += mostly
            self.count("precision", true)
        # Nobody knows that a visit lasts after the last fix of all.
        over = (end - start >= _VISIT_MIN_MS) & (end <= fixes.time[-1])
        for number in np.flatnonzero(over).tolist():
            self.count("recall", covered[number] >= 0.5 * (end - start)[number])
            self.count("split", parts[number] > 1)

    def _add_places(self, life: Life, fixes: Fixes, found: DevicePlaces) -> None:
        seen: Counter[int] = Counter()
        for visit in life.visits:
            if visit.end - visit.start >= _VISIT_MIN_MS:
                first, last = np.searchsorted(fixes.time, (visit.start, visit.end))
                if last > first:
                    seen[visit.spot] += 1
        for spot, visits in seen.items():
            near = any(away_m(place, life.spots[spot]) <= self._near_m for place in found.places)
            self.count("favourites", near)
            if visits >= 2:
                self.count("favourites, two visits", near)
        for place in found.places:
            self.count(
                "true places",
                any(away_m(place, life.spots[spot]) <= self._near_m for spot in seen),
            )
        nearest = Counter(
            min((away_m(place, spot), number) for number, spot in enumerate(life.spots))
            for place in found.places
        )
        around = Counter(number for away, number in nearest if away <= _AROUND_M)
        for places in around.values():
            self.count("one place", places == 1)

    def _add_labels(self, life: Life, found: DevicePlaces) -> None:
        """Count what is labelled on the last day."""
        for label in ("home", "work"):
            own = labelled(found, label)
            known = [
                life.spots[role.spot]
                for role in life.roles
                if role.label == label and role.end >= life.days
            ]
            for spot in known:
                self.count(label, any(away_m(place, spot) <= self._near_m for place in own))
            for place in own:
                right = any(away_m(place, spot) <= self._near_m for spot in known)
                self.count(f"true {label}", right)
                if place.confidence is not None and place.confidence >= 0.85:
                    self.count("sure", right)
            if not known:
                self.count(f"invented {label}", bool(own))
