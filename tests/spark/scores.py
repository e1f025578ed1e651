"""The quality of computed places, compared with the known places of synthetic people."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark.places.finding import DevicePlaces, Place
from spark.places.stay_points import haversine_m
from tests.spark.synthetic import Person, Point, degrees

VISIT_MIN_MS = 10 * 60_000


@dataclass
class Scores:
    """Counts over all people."""

    people: int = 0
    visits: int = 0
    visits_found: int = 0
    visits_split: int = 0
    reported_visits: int = 0
    true_visits: int = 0
    favourites: int = 0
    favourites_found: int = 0
    seen_favourites: int = 0
    seen_favourites_found: int = 0
    reported_places: int = 0
    true_places: int = 0
    homes: int = 0
    workers: int = 0
    works: int = 0
    idle: int = 0
    invented: int = 0

    @property
    def shares(self) -> dict[str, float]:
        return {
            "recall": self.visits_found / self.visits,
            "precision": self.true_visits / self.reported_visits,
            "split": self.visits_split / self.visits,
            "favourites": self.favourites_found / self.favourites,
            # Only places from which fixes were sent in two visits: others cannot be found.
            "seen favourites": self.seen_favourites_found / self.seen_favourites,
            "favourites precision": self.true_places / self.reported_places,
            "home": self.homes / self.people,
            "work": self.works / max(1, self.workers),
            "invented work": self.invented / max(1, self.idle),
        }

    def add(self, person: Person, found: DevicePlaces) -> None:
        self.people += 1
        self._add_visits(person, found)
        self._add_places(person, found.places)

    def _add_visits(self, person: Person, found: DevicePlaces) -> None:
        truth = person.visits
        start = np.array([visit.start for visit in truth])
        end = np.array([visit.end for visit in truth])
        spots = [degrees(person.places[visit.place]) for visit in truth]
        covered = np.zeros(len(truth))
        parts = np.zeros(len(truth), int)
        for visit in found.visits:
            overlap = np.minimum(end, visit.end) - np.maximum(start, visit.start)
            true = False
            for number in np.flatnonzero(overlap > 0):
                if haversine_m(visit.lat, visit.lon, *spots[number]) <= 100:
                    covered[number] += overlap[number]
                    true |= bool(overlap[number] >= 0.5 * (visit.end - visit.start))
                    # A part is a reported visit that lies mostly within this one.
                    parts[number] += overlap[number] >= 0.5 * (visit.end - visit.start)
            self.reported_visits += 1
            self.true_visits += true
        long = end - start >= VISIT_MIN_MS
        self.visits += int(long.sum())
        self.visits_found += int((covered[long] >= 0.5 * (end - start)[long]).sum())
        self.visits_split += int((parts[long] >= 2).sum())

    def _add_places(self, person: Person, places: list[Place]) -> None:
        counts, seen = [0] * len(person.places), [0] * len(person.places)
        for visit in person.visits:
            counts[visit.place] += visit.end - visit.start >= VISIT_MIN_MS
            first, last = np.searchsorted(person.fixes.time, (visit.start, visit.end))
            seen[visit.place] += bool(last > first)
        known = [point for point, count in zip(person.places, counts, strict=True) if count]
        for point, count, visits in zip(person.places, counts, seen, strict=True):
            if count >= 2:
                found = any(distance_m(each, point) <= 50 for each in places)
                self.favourites += 1
                self.favourites_found += found
                self.seen_favourites += visits >= 2
                self.seen_favourites_found += found and visits >= 2
        for place in places:
            self.reported_places += 1
            self.true_places += any(distance_m(place, point) <= 50 for point in known)
        home, work = labelled(places, "home"), labelled(places, "work")
        self.homes += home is not None and distance_m(home, person.home) <= 100
        if person.work is not None:
            self.workers += 1
            self.works += work is not None and distance_m(work, person.work) <= 100
        else:
            self.idle += 1
            self.invented += work is not None


def distance_m(place: Place, point: Point) -> float:
    return haversine_m(place.lat, place.lon, *degrees(point))


def labelled(places: list[Place], label: str) -> Place | None:
    found = [place for place in places if place.label == label]
    assert len(found) <= 1
    return found[0] if found else None
