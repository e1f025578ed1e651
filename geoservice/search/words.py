"""The splitting of text into words, the same for indexed names and for queries.

Case, accents and punctuation do not matter, and common abbreviations match the full words. An
abbreviation of several words ("st") matches each of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

#: All forms of one word of a text. Two words match when they have a form in common.
Forms = tuple[str, ...]

WORDS_MAX: Final = 24
_CHARACTERS_MAX: Final = 400
_WORD_CHARACTERS_MAX: Final = 60  # of a form; always fewer than 256 bytes in UTF-8

# Letters that Unicode does not decompose.
_LETTERS: Final = str.maketrans(
    {"ß": "ss", "ø": "o", "đ": "d", "ð": "d", "ł": "l", "æ": "ae", "œ": "oe", "þ": "th"}
    | {"\N{LATIN SMALL LETTER DOTLESS I}": "i"}
)
_UMLAUTS: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
_APOSTROPHES: Final = re.compile("['\N{RIGHT SINGLE QUOTATION MARK}`\N{ACUTE ACCENT}]")
_WORD: Final = re.compile(r"[^\W_]+")
#: Scripts that write without spaces: Han, Hiragana, Katakana, Hangul.
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")

_SHORT_FORMS: Final = (
    ("saint", "st", "sankt", "skt"),
    ("sainte", "ste"),
    ("san", "s"),
    ("santa", "sta"),
    ("street", "st", "str"),
    ("strasse", "str"),
    ("strada", "str"),
    ("avenue", "av", "ave", "aven"),
    ("avenida", "av", "avda"),
    ("boulevard", "bd", "bld", "blvd", "boul", "bvd"),
    ("road", "rd"),
    ("drive", "dr"),
    ("lane", "ln"),
    ("place", "pl"),
    ("plaza", "pl", "plz"),
    ("platz", "pl"),
    ("square", "sq"),
    ("court", "ct"),
    ("highway", "hwy"),
    ("parkway", "pkwy"),
    ("turnpike", "tpke"),
    ("expressway", "expy"),
    ("terrace", "ter", "terr"),
    ("crescent", "cres"),
    ("mount", "mt"),
    ("fort", "ft"),
    ("general", "gen"),
    ("doctor", "dr"),
    ("doktor", "dr"),
    ("professor", "prof"),
    ("chemin", "ch", "che"),
    ("route", "rte"),
    ("carrer", "c"),
    ("calle", "c", "cl"),
    ("carretera", "ctra", "crta"),
    ("passatge", "ptge"),
    ("impasse", "imp"),
    ("allee", "all"),
    ("quai", "q"),
    ("via", "v"),
    ("viale", "vle"),
    ("piazza", "p", "pza"),
    ("north", "n"),
    ("south", "s"),
    ("east", "e"),
    ("west", "w"),
    ("rua", "r"),
    ("rue", "r"),
    ("travessa", "tv", "trav"),
    ("triq", "tr"),
    ("weg", "wg"),
    ("first", "1st"),
    ("second", "2nd"),
    ("third", "3rd"),
)
#: Endings of compound words, with their abbreviations.
_ENDINGS: Final = (("strasse", "str"), ("platz", "pl"), ("straat", "str"))
#: Words that are often joined to the word before them.
_JOINED: Final = frozenset(
    (
        *("strasse", "straße", "str", "weg", "gasse", "platz", "allee", "ring", "damm", "ufer"),
        *("straat", "laan", "plein", "gata", "gatan", "vej", "vägen", "veien", "katu", "tie"),
    )
)
_SHORT_ENDINGS: Final = tuple(short for _, short in _ENDINGS)


def _long_forms() -> dict[str, Forms]:
    forms: dict[str, dict[str, None]] = {}
    for long, *shorts in _SHORT_FORMS:
        for short in shorts:
            forms.setdefault(short, {})[long] = None
    return {short: tuple(longs) for short, longs in forms.items()}


_LONG_FORMS: Final = _long_forms()


@lru_cache(maxsize=4096)
def split_words(text: str) -> tuple[Forms, ...]:
    """Return the words of a text, each with its forms."""
    words: list[Forms] = []
    before = ""
    for match in _WORD.finditer(_APOSTROPHES.sub(" ", text[:_CHARACTERS_MAX].casefold())):
        for word in _unspaced_parts(match[0]):
            words.append(_forms(word))
            if before and word in _JOINED:
                # Some write the two words as one.
                joined = _forms(before + word)
                words[-2:] = [(*words[-2], *joined), (*words[-1], *joined)]
            before = word
            if len(words) == WORDS_MAX:
                return tuple(words)
    return tuple(words)


def all_forms(texts: Iterable[str]) -> set[str]:
    """Return all forms of all words of texts."""
    return {form for text in texts for forms in split_words(text) for form in forms}


def plain(text: str) -> str:
    """Return a text without case and accents, the form in which house numbers are compared."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold().translate(_LETTERS)).casefold()
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def _unspaced_parts(word: str) -> Iterable[str]:
    """Split runs of text without spaces into overlapping pairs of characters."""
    position = 0
    for match in _UNSPACED.finditer(word):
        if match.start() > position:
            yield word[position : match.start()]
        run = match[0]
        yield from (run[start : start + 2] for start in range(max(1, len(run) - 1)))
        position = match.end()
    if position < len(word):
        yield word[position:]


def _forms(word: str) -> Forms:
    if word.isascii():
        forms = {word: None}
    else:
        forms = dict.fromkeys((plain(word), plain(word.translate(_UMLAUTS))))
    for form in tuple(forms):
        for long in _LONG_FORMS.get(form, ()):
            forms[long] = None
        if form.endswith(_SHORT_ENDINGS):
            for ending, short in _ENDINGS:
                if len(form) > len(short) + 2 and form.endswith(short):
                    forms[form[: -len(short)] + ending] = None
    cut = dict.fromkeys(form[:_WORD_CHARACTERS_MAX] for form in forms)
    return tuple(form for form in cut if form)
