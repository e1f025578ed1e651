"""The comparison of names in different spellings: `addr:street` with the name of a street."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

# Letters that Unicode does not decompose.
_LETTERS: Final = str.maketrans(
    {
        "ß": "ss",
        "ø": "o",
        "đ": "d",
        "ð": "d",
        "ł": "l",
        "æ": "ae",
        "œ": "oe",
        "\u0131": "i",
        "þ": "th",
    }
)
_SEPARATORS: Final = re.compile(r"[\W_]+")
_BRACKETS: Final = re.compile(r"\s*\(.*$")

#: Words of street names that are often abbreviated: the first of a group represents all of it.
_WORDS: Final[dict[str, str]] = {
    word: words[0]
    for words in (
        ("saint", "st", "sankt", "sant"),
        ("sainte", "ste", "santa", "sta"),
        ("street", "str"),
        ("avenue", "av", "ave", "avd", "avda", "avenida", "avinguda"),
        ("boulevard", "bd", "bld", "blvd", "boul", "bvd", "bulevar"),
        ("road", "rd"),
        ("drive", "dr", "drv", "doctor", "docteur", "doutor"),
        ("lane", "ln"),
        ("place", "pl", "placa", "plaza", "plz", "pza", "praca", "pc"),
        ("piazza", "pza", "pzza"),
        ("square", "sq"),
        ("court", "ct", "crt"),
        ("highway", "hwy"),
        ("parkway", "pkwy"),
        ("expressway", "expy", "expwy"),
        ("terrace", "ter", "terr"),
        ("crescent", "cres"),
        ("circle", "cir"),
        ("trail", "trl"),
        ("mount", "mt"),
        ("general", "gen"),
        ("marechal", "mal"),
        ("monseigneur", "mgr", "monsenhor", "mons"),
        ("professor", "prof", "professeur"),
        ("chemin", "ch", "che", "chem"),
        ("carrer", "c", "calle", "cl"),
        ("carretera", "ctra", "crta"),
        ("passatge", "ptge", "passage", "pas", "pasaje", "psje"),
        ("passeig", "pg", "paseo"),
        ("impasse", "imp"),
        ("allee", "all", "allees"),
        ("escalier", "esc", "escaliers"),
        ("square", "sq"),
        ("north", "n"),
        ("south", "s"),
        ("east", "e"),
        ("west", "w"),
        ("northeast", "ne"),
        ("northwest", "nw"),
        ("southeast", "se"),
        ("southwest", "sw"),
        ("rua", "r"),
        ("largo", "lg"),
        ("travessa", "tv", "trav"),
        ("estrada", "estr"),
        ("route", "rte"),
        ("faubourg", "fbg", "fg"),
        ("sir", "sr"),
    )
    for word in reversed(words)
}

#: Endings of street names that are written separately, joined or abbreviated.
_ENDINGS: Final = {
    "strasse": "str",
    "str": "str",
    "gasse": "gasse",
    "platz": "pl",
    "weg": "weg",
    "siedlung": "siedlung",
    "stiege": "stiege",
    "brucke": "brucke",
    "straat": "str",
    "laan": "ln",
    "plein": "pln",
    "gracht": "gracht",
    "katu": "katu",
    "kuja": "kuja",
    "tie": "tie",
    "polku": "polku",
    "aukio": "aukio",
    "ranta": "ranta",
    "rinne": "rinne",
    "kaari": "kaari",
    "tori": "tori",
    "puisto": "puisto",
    "gatan": "g",
    "gata": "g",
    "vagen": "v",
    "vag": "v",
    "grand": "gr",
    "granden": "gr",
    "stigen": "stig",
    "stig": "stig",
    "platsen": "plats",
    "plats": "plats",
    "veien": "vn",
    "vegen": "vn",
    "vei": "v",
    "veg": "v",
}
_ENDING: Final = re.compile(rf"^(.+?)({'|'.join(sorted(_ENDINGS, key=len, reverse=True))})$")


@lru_cache(maxsize=65_536)
def normalized(name: str) -> str:
    """Return a name in lower case, without accents and punctuation, with unified abbreviations."""
    text = unicodedata.normalize("NFKD", name.casefold().translate(_LETTERS))
    text = "".join(letter for letter in text if not unicodedata.combining(letter))
    words: list[str] = []
    for word in _SEPARATORS.sub(" ", text).split():
        if word in _ENDINGS and words:
            words[-1] += _ENDINGS[word]
            continue
        ending = _ENDING.match(word)
        words.append(
            f"{ending[1]}{_ENDINGS[ending[2]]}" if ending is not None else _WORDS.get(word, word)
        )
    return " ".join(words)


def spellings(names: Mapping[str, str]) -> set[str]:
    """Return all names that an object may be called by, normalized."""
    result: set[str] = set()
    for name in names.values():
        result.update(_split(name))
    result.discard("")
    return result


def _split(name: str) -> Iterable[str]:
    for part in name.split(";") if ";" in name else (name,):
        yield normalized(part)
        if "(" in part and (part.rstrip().endswith(")") or ")" not in part):
            yield normalized(_BRACKETS.sub("", part))


def words(names: Iterable[str]) -> set[str]:
    """Return all words of names."""
    return {word for name in names for word in normalized(name).split()}
