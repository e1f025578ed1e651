"""When two spellings are the same name: `addr:street` against the name of a street."""

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

#: Words of street names that are often written short. The values only have to be the same for
#: all spellings of a word.
_WORDS: Final[dict[str, str]] = {
    word: words[0]
    for words in (
        ("saint", "st", "sankt", "st", "sant", "san"),
        ("sainte", "ste", "santa", "sta"),
        ("street", "str"),
        ("avenue", "av", "ave", "aven", "avenida", "avinguda", "avda"),
        ("boulevard", "bd", "bld", "blvd", "boul", "bvd"),
        ("road", "rd"),
        ("drive", "dr"),
        ("lane", "ln"),
        ("place", "pl", "placa", "plaza", "plz"),
        ("square", "sq"),
        ("court", "ct"),
        ("highway", "hwy"),
        ("parkway", "pkwy"),
        ("terrace", "ter", "terr"),
        ("crescent", "cres"),
        ("mount", "mt"),
        ("general", "gen"),
        ("doctor", "dr"),
        ("professor", "prof", "professeur"),
        ("chemin", "ch", "che"),
        ("carrer", "c", "calle"),
        ("carretera", "ctra", "crta"),
        ("passatge", "ptge", "passage", "pass"),
        ("impasse", "imp"),
        ("allee", "all"),
        ("escalier", "esc", "escaliers"),
        ("north", "n"),
        ("south", "s"),
        ("east", "e"),
        ("west", "w"),
        ("rua", "r"),
        ("travessa", "tv", "trav"),
        ("triq", "tr"),
        ("weg", "wg"),
    )
    for word in words
}
_ENDINGS: Final = (("strasse", "str"), ("platz", "pl"), ("gatan", "g"), ("katu", "k"))


@lru_cache(maxsize=65_536)
def normalized(name: str) -> str:
    """Lower case, without accents and punctuation, abbreviated words made the same."""
    text = unicodedata.normalize("NFKD", name.casefold().translate(_LETTERS))
    text = "".join(letter for letter in text if not unicodedata.combining(letter))
    words = _SEPARATORS.sub(" ", text).split()
    return " ".join(_short(word) for word in words)


def _short(word: str) -> str:
    word = _WORDS.get(word, word)
    for ending, short in _ENDINGS:
        if word.endswith(ending) and len(word) > len(ending):
            return word[: -len(ending)] + short
    return word


def spellings(names: Mapping[str, str]) -> set[str]:
    """All that an object may be called, normalized."""
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
    """All words of names."""
    return {word for name in names for word in normalized(name).split()}
