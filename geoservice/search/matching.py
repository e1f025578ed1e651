"""The matching of one query with one layer: the places that match, and their scores.

Every word of the query must be in a name of the place, in the name of an area around it, or be its
house number. Stop words ("de la") and a house number that is not found may be missing. Places whose
full name is in the query score highest, then important places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from geoservice.search.query import House, Query, SearchLayer
from geoservice.search.sections import Numbers
from geoservice.search.words import Forms, plain, split_words

#: Limits for one query: entries of the word index read, places scored, and places scored of which
#: words are missing.
_POSTINGS_MAX: Final = 400_000
_LOOKED_AT_MAX: Final = 250
_LOOKED_AT_LACKING_MAX: Final = 50

#: Stop words, which may be missing from a name.
_LITTLE_WORDS: Final = frozenset(
    (
        *("a", "al", "an", "and", "at", "d", "da", "dal", "das", "de", "degli", "dei", "del"),
        *("della", "delle", "dem", "den", "der", "des", "di", "die", "do", "dos", "du", "e", "el"),
        *("en", "et", "i", "il", "im", "in", "l", "la", "las", "le", "les", "lo", "los", "n"),
        *("near", "of", "on", "s", "the", "u", "und", "van", "vom", "von", "y", "zu", "zum"),
        "zur",
    )
)

# Weights of a match; the importance is added to them and goes from 0 to 0.5.
_FULL_NAME: Final = 0.5
_HOUSE_FOUND: Final = 0.4
_IN_VIEWBOX: Final = 0.3
_NUMBER_MISSING: Final = 0.1
_COVERED: Final = 0.2
_OTHER_NAME: Final = 0.05
_OTHER_ORDER: Final = 0.1

#: Address ranks that answer a part of a structured query, if it is the finest part.
_PART_RANKS: Final = {
    "amenity": (28, 30),
    "street": (25, 30),
    "city": (12, 25),
    "county": (9, 13),
    "state": (5, 9),
    "country": (4, 4),
    "postalcode": (5, 5),
}


class Word(msgspec.Struct, frozen=True):
    """A word of the query."""

    forms: Forms
    may_name: bool  # may be in the place's own name
    may_place: bool  # may be in the name of an area around the place
    may_number: bool  # may be the house number or a part of it

    @property
    def is_little(self) -> bool:
        """Return whether the word may be missing."""
        return self.forms[0] in _LITTLE_WORDS


class ParsedQuery(msgspec.Struct, frozen=True):
    """A query split into words."""

    words: tuple[Word, ...]
    house_numbers: tuple[str, ...]  # normalised candidates
    ranks: tuple[int, int] | None


class Match(msgspec.Struct, frozen=True):
    """A place that matches, with its score."""

    score: float
    layer: Any  # SearchLayer
    number: int
    house: House | None


def parse_question(query: Query) -> ParsedQuery:
    """Split a query into words, and mark what each of them may be."""
    if query.structured is None:
        words = _words(query.text, may_name=True, may_place=True, may_number=True)
        return ParsedQuery(words, _house_numbers(query.text), query.ranks)
    # The finest part is what is searched, the others are the areas around it.
    parts = [(name, getattr(query.structured, name)) for name in _PART_RANKS]
    parts = [(name, text) for name, text in parts if text.strip()]
    if not parts:
        return ParsedQuery((), (), query.ranks)
    finest, text = parts[0]
    numbered = finest == "street"
    asked = _words(text, may_name=True, may_place=False, may_number=numbered)
    for _, coarser in parts[1:]:
        asked += _words(coarser, may_name=False, may_place=True, may_number=False)
    house_numbers = _house_numbers(text) if numbered else ()
    return ParsedQuery(asked, house_numbers, query.ranks or _PART_RANKS[finest])


def _words(text: str, *, may_name: bool, may_place: bool, may_number: bool) -> tuple[Word, ...]:
    words: list[Word] = []
    for forms in split_words(text):
        has_digit = any(letter.isdigit() for letter in forms[0])
        # A single letter after a number belongs to it: "34 b".
        is_letter = len(forms[0]) == 1 and bool(words) and words[-1].may_number
        words.append(Word(forms, may_name, may_place, may_number and (has_digit or is_letter)))
    return tuple(words)


def _house_numbers(text: str) -> tuple[str, ...]:
    """Return the parts of a text that can be house numbers: "12", "7 a", "89-01"."""
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


class Matching:
    """The matching of one query with one layer."""

    def __init__(self, layer: SearchLayer, query: Query, asked: ParsedQuery) -> None:
        self._layer = layer
        self._query = query
        self._asked = asked
        self._named: list[Numbers] = []
        self._placed: list[NDArray[np.bool_] | None] = []
        for word in asked.words:
            self._named.append(_union([layer.words.named(form) for form in word.forms]))
            inside = _union([layer.words.contexts(form) for form in word.forms])
            self._placed.append(self._as_set(inside) if word.may_place and len(inside) else None)

    def matches(self) -> list[Match]:
        """Return the places that match, unsorted."""
        candidates = self._candidates()
        # A damaged index may contain numbers beyond the last object.
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
        lacking = np.zeros((len(self._asked.words), len(candidates)), dtype=bool)
        missing = np.zeros(len(candidates), dtype=np.int64)
        covered = np.zeros(len(candidates))
        weight = np.zeros(len(candidates))
        for place, (word, in_name, inside, owners) in enumerate(
            zip(self._asked.words, named, self._placed, self._named, strict=True)
        ):
            matched = in_name if inside is None else in_name | inside[contexts]
            if word.may_place and len(owners):
                # A restaurant is also found by the name of its street.
                matched = matched | np.isin(parents, owners)
            covered += matched / len(self._asked.words)
            weight += np.where(in_name, 1.0 / (1.0 + np.log1p(len(owners))), 0.0)
            if word.may_number:
                missing += ~matched
            elif not word.is_little:
                lacking[place] = ~matched
        lacks = lacking.sum(axis=0)
        fits = np.any(
            [
                in_name
                for word, in_name in zip(self._asked.words, named, strict=True)
                if not word.is_little
            ],
            axis=0,
        )
        fits &= self._wanted(candidates)

        def look_at(chosen: NDArray[np.intp], count_max: int) -> list[Match]:
            importances = self._layer.importances(candidates[chosen])
            preliminary = weight[chosen] + importances - 0.2 * missing[chosen] - lacks[chosen]
            best = np.argsort(-preliminary, kind="stable")[:count_max]
            matches = (
                self._match(
                    int(candidates[chosen[place]]),
                    float(importances[place]),
                    [bool(in_name[chosen[place]]) for in_name in named],
                    int(missing[chosen[place]]),
                    float(covered[chosen[place]]),
                    np.flatnonzero(lacking[:, chosen[place]]).tolist(),
                )
                for place in best.tolist()
            )
            return [match for match in matches if match is not None]

        found = look_at(np.flatnonzero(fits & (lacks == 0)), _LOOKED_AT_MAX)
        if self._asked.house_numbers and all(match.house is None for match in found):
            # Some houses are in a city only by their own address, not by that of their street.
            unplaced = [place for place, inside in enumerate(self._placed) if inside is None]
            fits &= (lacks > 0) & ~lacking[unplaced].any(axis=0)
            found += look_at(np.flatnonzero(fits), _LOOKED_AT_LACKING_MAX)
        return found

    def _match(
        self,
        number: int,
        importance: float,
        in_name: Sequence[bool],
        missing: int,
        covered: float,
        lacking: Sequence[int],
    ) -> Match | None:
        """Score one place, or its house if the query has the number of one.

        Returns None if words are missing that the house's own address does not have either.
        """
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
            # Try the longest form of a number first: "12 b" before "12".
            for place, house_number in enumerate(self._asked.house_numbers):
                house = self._layer.house(number, house_number)
                if house is not None:
                    score += _HOUSE_FOUND - _OTHER_NAME * place
                    break
            else:
                score -= _NUMBER_MISSING * missing
        if lacking and (house is None or not self._lies_in(house, lacking)):
            return None
        if self._query.viewbox is not None and not self._query.bounded:
            single = np.array([number], dtype=np.int32)
            if self._layer.inside(single, self._query.viewbox)[0]:
                score += _IN_VIEWBOX
        return Match(score, self._layer, number, house)

    def _lies_in(self, house: House, words: Sequence[int]) -> bool:
        """Return whether these words are in the address of the house itself."""
        [context] = self._layer.contexts(np.array([house.number], dtype=np.int32)).tolist()
        insides = [self._placed[word] for word in words]
        return all(inside is not None and bool(inside[context]) for inside in insides)

    def _candidates(self) -> Numbers:
        """Return the objects with a significant word in their name, taking rare words first."""
        words = [
            owners
            for word, owners in zip(self._asked.words, self._named, strict=True)
            if word.may_name and not word.is_little
        ]
        if not any(word.may_place for word in self._asked.words if word.may_name):
            # In a structured query, all words of the finest part must be in the name.
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
        # The array has one extra element at the end, for the context -1, which means none.
        inside = np.zeros(self._layer.context_count + 1, dtype=bool)
        inside[contexts[(contexts >= 0) & (contexts < self._layer.context_count)]] = True
        return inside


def _share(asked: Sequence[Forms], name: Sequence[Forms]) -> float:
    """Return the share of a name's words that the query has; a little less in another order."""
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
