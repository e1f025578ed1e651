"""Forward search: which places does a text name?

Every word of the question must be in a name of the place, or in what it lies in, or be its house
number; little words ("de la") and a house number that is nowhere may be missing. Among those that
match, names that are asked for in full come first, then important places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from geoservice.reverse import Place
from geoservice.search_sections import Numbers, WordIndex
from geoservice.search_words import Forms, all_forms, plain, split_words

LIMIT_DEFAULT: Final = 10
LIMIT_MAX: Final = 50

#: How many entries of the word index one question may read, and how many places it may look at.
_POSTINGS_MAX: Final = 400_000
_LOOKED_AT_MAX: Final = 250

#: Words that may be missing from a name.
_LITTLE_WORDS: Final = frozenset(
    (
        *("a", "al", "an", "and", "at", "d", "da", "dal", "das", "de", "degli", "dei", "del"),
        *("della", "delle", "dem", "den", "der", "des", "di", "die", "do", "dos", "du", "e", "el"),
        *("en", "et", "i", "il", "im", "in", "l", "la", "las", "le", "les", "lo", "los", "n"),
        *("near", "of", "on", "s", "the", "u", "und", "van", "vom", "von", "y", "zu", "zum"),
        "zur",
    )
)

# What a match is worth beside the importance, which goes from 0 to 0.5.
_FULL_NAME: Final = 0.5
_HOUSE_FOUND: Final = 0.4
_IN_VIEWBOX: Final = 0.3
_NUMBER_MISSING: Final = 0.1
_COVERED: Final = 0.2
_OTHER_NAME: Final = 0.05
_OTHER_ORDER: Final = 0.1

#: Address ranks by Nominatim's featureType.
FEATURE_RANKS: Final = {
    "country": (4, 4),
    "state": (8, 8),
    "city": (14, 16),
    "settlement": (8, 20),
}

_RANK_SUBURB: Final = 22

#: Nominatim's layer by the main tag; all others are points of interest.
_LAYERS: Final = dict.fromkeys(("highway", "place", "boundary", "building"), "address") | {
    "railway": "railway",
    "natural": "natural",
    "man_made": "manmade",
}

Box = tuple[float, float, float, float]  # west, south, east, north


class Structured(msgspec.Struct, frozen=True, kw_only=True):
    """A question in parts, from fine to coarse."""

    amenity: str = ""
    street: str = ""
    city: str = ""
    county: str = ""
    state: str = ""
    country: str = ""
    postalcode: str = ""


#: Which address ranks a part of a question may be answered by, if it is the finest one.
_PART_RANKS: Final = {
    "amenity": (28, 30),
    "street": (25, 30),
    "city": (12, 25),
    "county": (9, 13),
    "state": (5, 9),
    "country": (4, 4),
    "postalcode": (5, 5),
}


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A question."""

    text: str = ""
    structured: Structured | None = None  # instead of the text
    limit: int = LIMIT_DEFAULT
    countries: frozenset[str] = frozenset()  # ISO codes in lower case; empty: all
    viewbox: Box | None = None  # preferred, or with `bounded` the only one
    bounded: bool = False
    ranks: tuple[int, int] | None = None  # address ranks, see FEATURE_RANKS
    layers: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()  # place ids, or "N12", "W34", "R56"
    languages: tuple[str, ...] = ()
    dedupe: bool = True


class House(msgspec.Struct, frozen=True):
    """A house of a street: an object of its own, or one that is counted along a line."""

    number: int
    counted: int = -1  # the house number, on a line between two houses


class SearchLayer(Protocol):
    """One index that can be searched. Arguments and answers are its own numbers of objects."""

    words: WordIndex
    context_count: int
    object_count: int
    bonus: float  # what its places are worth beside those of other layers

    def contexts(self, numbers: Numbers) -> Numbers:
        """What each lies in; -1 for nothing."""

    def parents(self, numbers: Numbers) -> Numbers:
        """The street or place that each is on; -1 for none."""

    def importances(self, numbers: Numbers) -> NDArray[np.float64]:
        """How well known each is, 0 to 1."""

    def ranks(self, numbers: Numbers) -> Numbers:
        """Nominatim's address ranks."""

    def inside(self, numbers: Numbers, box: Box) -> NDArray[np.bool_]:
        """Which of them are in a box."""

    def names(self, number: int) -> Iterable[str]:
        """All names of one, the one that is shown first."""

    def house(self, number: int, house_number: str) -> House | None:
        """The house of a street or place with this (plain) number."""

    def place(self, number: int, languages: Sequence[str], house: House | None) -> Place:
        """What an answer says about one, or about its house."""

    def postcodes(self, text: str, languages: Sequence[str]) -> list[Place]:
        """The areas of a postcode, one a country."""


class _Word(msgspec.Struct, frozen=True):
    """A word of the question."""

    forms: Forms
    may_name: bool  # may it be in the place's own name?
    may_place: bool  # may it be in the name of what the place lies in?
    may_number: bool  # may it be (part of) the house number?

    @property
    def is_little(self) -> bool:
        return self.forms[0] in _LITTLE_WORDS


class _Asked(msgspec.Struct, frozen=True):
    """A question taken to pieces."""

    words: tuple[_Word, ...]
    house_numbers: tuple[str, ...]  # plain; what may be one
    ranks: tuple[int, int] | None


class _Match(msgspec.Struct, frozen=True):
    score: float
    layer: Any  # SearchLayer
    number: int
    house: House | None


def search(layers: Sequence[SearchLayer], query: Query) -> list[Place]:
    """The places that match, best first; no more than the limit."""
    asked = _take_apart(query)
    if not any(word.may_name and not word.is_little for word in asked.words):
        return []
    matches: list[_Match] = []
    for layer in layers:
        matches += _Search(layer, query, asked).matches()
    matches.sort(key=lambda match: -match.score)
    return _first(matches, query, _postcodes(layers, query))


def _postcodes(layers: Sequence[SearchLayer], query: Query) -> list[Place]:
    """Areas of a postcode, if the question is nothing else or names only a country beside."""
    text = query.text.strip()
    if query.structured is not None:
        parts = query.structured
        text = parts.postalcode.strip()
        if parts.amenity or parts.street or parts.city or parts.county:
            return []
    if not text or query.ranks is not None or not _is_in_layers(None, query.layers):
        return []
    places = [place for layer in layers for place in layer.postcodes(text, query.languages)]
    if query.structured is not None and query.structured.country:
        wanted = all_forms([query.structured.country])
        places = [place for place in places if wanted & all_forms(place.address.values())]
    return places


def _first(matches: Sequence[_Match], query: Query, places: list[Place]) -> list[Place]:
    if query.countries:
        places = [place for place in places if place.address.get("country_code") in query.countries]
    places = places[: query.limit]
    seen: set[Any] = set()
    towns: set[tuple[str, str]] = set()  # found in an extract
    for match in matches:
        if len(places) >= query.limit:
            break
        place: Place = match.layer.place(match.number, query.languages, match.house)
        if not query.excluded.isdisjoint(_ids(place)) or not _is_in_layers(place, query.layers):
            continue
        if query.countries and place.address.get("country_code") not in query.countries:
            continue
        if query.dedupe:
            # Pieces of one street are one answer.
            key = (place.category, place.type, place.display_name, place.address_rank)
            if key in seen:
                continue
            seen.add(key)
            town = plain(place.name), place.address.get("country_code", "")
            if place.osm_type is not None:
                if place.address_rank <= _RANK_SUBURB:
                    towns.add(town)
            elif town in towns:
                # The world's index knows less about it.
                continue
        places.append(place)
    return places


def _ids(place: Place) -> tuple[str, ...]:
    if place.osm_type is None:
        return (str(place.place_id),)
    return str(place.place_id), f"{place.osm_type[0].upper()}{place.osm_id}"


def _is_in_layers(place: Place | None, layers: frozenset[str] | None) -> bool:
    if layers is None:
        return True
    if place is None:
        return "address" in layers
    of_place = {_LAYERS.get(place.category, "poi")}
    if "house_number" in place.address:
        of_place.add("address")
    return not layers.isdisjoint(of_place)


def _take_apart(query: Query) -> _Asked:
    if query.structured is None:
        words = _words(query.text, may_name=True, may_place=True, may_number=True)
        return _Asked(words, _house_numbers(query.text), query.ranks)
    # The finest part is what is looked for, the others say where.
    parts = [(name, getattr(query.structured, name)) for name in _PART_RANKS]
    parts = [(name, text) for name, text in parts if text.strip()]
    if not parts:
        return _Asked((), (), query.ranks)
    finest, text = parts[0]
    numbered = finest == "street"
    asked = _words(text, may_name=True, may_place=False, may_number=numbered)
    for _, coarser in parts[1:]:
        asked += _words(coarser, may_name=False, may_place=True, may_number=False)
    house_numbers = _house_numbers(text) if numbered else ()
    return _Asked(asked, house_numbers, query.ranks or _PART_RANKS[finest])


def _words(text: str, *, may_name: bool, may_place: bool, may_number: bool) -> tuple[_Word, ...]:
    words: list[_Word] = []
    for forms in split_words(text):
        has_digit = any(letter.isdigit() for letter in forms[0])
        # The letter behind a number: "34 b".
        is_letter = len(forms[0]) == 1 and bool(words) and words[-1].may_number
        words.append(_Word(forms, may_name, may_place, may_number and (has_digit or is_letter)))
    return tuple(words)


def _house_numbers(text: str) -> tuple[str, ...]:
    """The parts of a text that can be house numbers: "12", "7 a", "89-01"."""
    parts = plain(text).replace(",", " ").split()
    numbers: list[str] = []
    for place, part in enumerate(parts):
        if not any(letter.isdigit() for letter in part):
            continue
        after = parts[place + 1] if place + 1 < len(parts) else ""
        if part.isdigit() and len(after) == 1 and after.isalpha():
            numbers.append(part + after)
        numbers.append(part)
    return tuple(dict.fromkeys(numbers))


class _Search:
    """One question to one layer."""

    def __init__(self, layer: SearchLayer, query: Query, asked: _Asked) -> None:
        self._layer = layer
        self._query = query
        self._asked = asked
        self._named: list[Numbers] = []
        self._placed: list[NDArray[np.bool_] | None] = []
        for word in asked.words:
            numbers = [layer.words.find(form) for form in word.forms]
            self._named.append(_union([layer.words.named(number) for number in numbers]))
            inside = _union([layer.words.contexts(number) for number in numbers])
            self._placed.append(self._as_set(inside) if word.may_place and len(inside) else None)

    def matches(self) -> list[_Match]:
        """The places that match, in no order."""
        candidates = self._candidates()
        # A damaged index may name more than there is.
        candidates = candidates[(candidates >= 0) & (candidates < self._layer.object_count)]
        if not len(candidates):
            return []
        contexts = self._layer.contexts(candidates)
        parents = self._layer.parents(candidates)
        named = [
            np.isin(candidates, owners, assume_unique=True)
            if word.may_name
            else np.zeros(len(candidates), dtype=bool)
            for word, owners in zip(self._asked.words, self._named, strict=True)
        ]
        complete = np.ones(len(candidates), dtype=bool)
        missing = np.zeros(len(candidates), dtype=np.int64)
        covered = np.zeros(len(candidates))
        weight = np.zeros(len(candidates))
        for word, in_name, inside, owners in zip(
            self._asked.words, named, self._placed, self._named, strict=True
        ):
            matched = in_name if inside is None else in_name | inside[contexts]
            if word.may_place and len(owners):
                # A restaurant is also found by its street.
                matched = matched | np.isin(parents, owners)
            covered += matched / len(self._asked.words)
            weight += np.where(in_name, 1.0 / (1.0 + np.log1p(len(owners))), 0.0)
            if word.may_number:
                missing += ~matched
            elif not word.is_little:
                complete &= matched
        complete &= np.any(
            [
                in_name
                for word, in_name in zip(self._asked.words, named, strict=True)
                if not word.is_little
            ],
            axis=0,
        )
        complete &= self._wanted(candidates)
        chosen = np.flatnonzero(complete)
        importances = self._layer.importances(candidates[chosen])
        preliminary = weight[chosen] + importances - 0.2 * missing[chosen]
        best = np.argsort(-preliminary, kind="stable")[:_LOOKED_AT_MAX]
        return [
            self._match(
                int(candidates[chosen[place]]),
                float(importances[place]),
                [bool(in_name[chosen[place]]) for in_name in named],
                int(missing[chosen[place]]),
                float(covered[chosen[place]]),
            )
            for place in best.tolist()
        ]

    def _match(
        self,
        number: int,
        importance: float,
        in_name: Sequence[bool],
        missing: int,
        covered: float,
    ) -> _Match:
        """The score of one place, or of its house if the question has its number."""
        forms = [word.forms for word, here in zip(self._asked.words, in_name, strict=True) if here]
        names = self._layer.names(number)
        share = max(
            (
                _share(forms, split_words(name)) - (_OTHER_NAME if place else 0.0)
                for place, name in enumerate(names)
            ),
            default=0.0,
        )
        score = importance + self._layer.bonus + _COVERED * covered + _FULL_NAME * share
        house = None
        wanted = zip(self._asked.words, in_name, strict=True)
        if any(word.may_number and not here for word, here in wanted):
            # The longest reading of a number first: "12 b" before "12".
            for place, house_number in enumerate(self._asked.house_numbers):
                house = self._layer.house(number, house_number)
                if house is not None:
                    score += _HOUSE_FOUND - _OTHER_NAME * place
                    break
            else:
                score -= _NUMBER_MISSING * missing
        if self._query.viewbox is not None and not self._query.bounded:
            single = np.array([number], dtype=np.int32)
            if self._layer.inside(single, self._query.viewbox)[0]:
                score += _IN_VIEWBOX
        return _Match(score, self._layer, number, house)

    def _candidates(self) -> Numbers:
        """What has at least one word that matters in its name, by the rarest words first."""
        words = [
            owners
            for word, owners in zip(self._asked.words, self._named, strict=True)
            if word.may_name and not word.is_little
        ]
        if not any(word.may_place for word in self._asked.words if word.may_name):
            # A structured question: all words of its finest part must be in the name.
            words = [
                owners
                for word, owners in zip(self._asked.words, self._named, strict=True)
                if word.may_name and not word.is_little and not word.may_number
            ]
            result = min(words, key=len, default=np.empty(0, dtype=np.int32))
            return np.unique(result[:_POSTINGS_MAX])
        words.sort(key=len)
        chosen: list[Numbers] = []
        total = 0
        for owners in words:
            if total + len(owners) > _POSTINGS_MAX:
                break
            chosen.append(owners)
            total += len(owners)
        return _union(chosen)

    def _wanted(self, candidates: Numbers) -> NDArray[np.bool_]:
        wanted = np.ones(len(candidates), dtype=bool)
        if self._asked.ranks is not None:
            first, last = self._asked.ranks
            ranks = self._layer.ranks(candidates)
            wanted &= (ranks >= first) & (ranks <= last)
        if self._query.bounded and self._query.viewbox is not None:
            wanted &= self._layer.inside(candidates, self._query.viewbox)
        return wanted

    def _as_set(self, contexts: Numbers) -> NDArray[np.bool_]:
        # One longer than there are contexts: -1, which stands for none, is the last.
        inside = np.zeros(self._layer.context_count + 1, dtype=bool)
        inside[contexts[(contexts >= 0) & (contexts < self._layer.context_count)]] = True
        return inside


def _share(asked: Sequence[Forms], name: Sequence[Forms]) -> float:
    """How much of a name was asked for; a little less when it was in another order."""
    if not name:
        return 0.0
    wanted = {form for forms in asked for form in forms}
    found = sum(1 for forms in name if not wanted.isdisjoint(forms))
    in_order = all(
        not set(forms).isdisjoint(other) for forms, other in zip(asked, name, strict=False)
    )
    return found / len(name) - (0.0 if in_order else _OTHER_ORDER)


def _union(groups: Sequence[Numbers]) -> Numbers:
    groups = [group for group in groups if len(group)]
    if not groups:
        return np.empty(0, dtype=np.int32)
    if len(groups) == 1:
        return np.unique(groups[0])
    return np.unique(np.concatenate(groups))
