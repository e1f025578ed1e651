"""Every text of the page is in the catalogue of every language, and no other text is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gateway.web import vendor

PAGE = Path(vendor.__file__).parent
#: What the client says is for programs and those who write them.
CLIENT = PAGE / "js" / "client"
MODULES = sorted(path for path in (PAGE / "js").rglob("*.js") if CLIENT not in path.parents)
CATALOGUES = {path.stem: json.loads(path.read_text()) for path in (PAGE / "locales").glob("*.json")}
ENGLISH = CATALOGUES["en"]

#: A string, a template, a comment or a regular expression's end of JavaScript.
_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)",
    re.DOTALL,
)
#: A word as it begins a text, or two words.
_PROSE = re.compile(r"(?:^|[\s·(])(?:[A-ZÄÖÜ][a-zäöüß]+(?:$|[\s.:…])|[a-zäöüß]{2,} [a-zäöüß]{2,})")
#: What looks like a text and is none: names of the DOM, of GeoJSON, of keys, fonts and messages
#: for developers.
_NAMES = {
    *("Enter", "Escape", "ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "PageDown", "PageUp"),
    *("Home", "End", "Feature", "FeatureCollection", "LineString", "MultiLineString", "Polygon"),
    *("Point", "English", "Deutsch", "Waylog", "Waylog Medium", "Roboto", "Segoe UI", "Noto Sans"),
    *("Liberation Sans", "UTC", "waylog link"),
    *("Edge", "Opera", "Firefox", "Chrome", "Safari", "Android", "Windows", "Linux"),
}
#: Where a literal is not for people: shaders, drawings, CSS, commands, errors of the page's own.
_NOT_FOR_PEOPLE = re.compile(
    r"throw new \w+\($|new Error\($|\bVERTEX = $|\bFRAGMENT = $|^\s+\w+: $|querySelector(?:All)?\($"
    r"|className: $|import\($|matchMedia\($|\?\? $|matches\($|closest\($"
)


def literals(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the strings of a module, without quotes and placeholders, with what is before them."""
    text = path.read_text()
    for found in _TOKEN.finditer(text):
        if found["string"]:
            start = text.rfind("\n", 0, found.start()) + 1
            yield re.sub(r"\$\{[^}]*\}", "{}", found["string"][1:-1]), text[start : found.start()]


def placeholders(message: str | dict[str, str]) -> set[str]:
    """Return the names in a message's braces."""
    forms = [message] if isinstance(message, str) else message.values()
    return {name for form in forms for name in re.findall(r"\{(\w+)\}", form)}


def used_keys() -> set[str]:
    """Return the keys that modules and markup name."""
    found = {text for path in MODULES for text, _ in literals(path)}
    markup = (PAGE / "index.html").read_text()
    return found | set(re.findall(r'data-(?:text|label|title)="([^"]+)"', markup))


def test_there_are_catalogues_of_the_languages_that_can_be_chosen() -> None:
    module = (PAGE / "js" / "i18n.js").read_text()
    listed = re.search(r"LANGUAGES = \{([^}]*)\}", module)
    assert listed is not None
    assert set(re.findall(r"(\w+):", listed[1])) == set(CATALOGUES)
    assert {"en", "de"} <= set(CATALOGUES)


@pytest.mark.parametrize("language", CATALOGUES)
def test_a_catalogue_has_every_text(language: str) -> None:
    own: dict[str, Any] = CATALOGUES[language]
    assert list(own) == list(ENGLISH)
    for key, message in ENGLISH.items():
        assert placeholders(own[key]) <= placeholders(message) | {"count"}, key
        assert isinstance(own[key], dict) == isinstance(message, dict), key
        if isinstance(message, dict):
            assert "other" in own[key], key
        assert own[key], key


def test_every_text_is_used() -> None:
    assert set(ENGLISH) - used_keys() == set()


def test_every_text_that_the_markup_names_is_there() -> None:
    markup = (PAGE / "index.html").read_text()
    assert set(re.findall(r'data-(?:text|label|title)="([^"]+)"', markup)) <= set(ENGLISH)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PAGE / "js").as_posix())
def test_no_text_is_written_in_a_module(path: Path) -> None:
    written = [
        text
        for text, before in literals(path)
        if text not in ENGLISH and text not in _NAMES and is_prose(text, before)
    ]
    assert written == []


def is_prose(text: str, before: str) -> bool:
    """Tell whether a literal looks as if people were to read it."""
    is_command = "\\\\" in text  # with a backslash at the end of its lines
    return bool(_PROSE.search(text)) and not is_command and not _NOT_FOR_PEOPLE.search(before)


@pytest.mark.parametrize(
    "line",
    [
        'make("p", { text: "No visit yet." })',
        'setText(this.age, "heard of long ago")',
        'button.title = "Close";',
        "setText(x, `Offline since ${when} or so`)",
    ],
)
def test_a_written_text_would_be_noticed(line: str, tmp_path: Path) -> None:
    module = tmp_path / "module.js"
    module.write_text(line)
    found = [text for text, before in literals(module) if is_prose(text, before)]
    assert len(found) == 1


class _Markup(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where the parser is, and the attributes that people would read."""
        if tag not in {"meta", "link", "img", "br"}:
            self.inside.append(tag)
        names = {"title", "aria-label", "placeholder"}
        self.texts += [value for name, value in attrs if name in names and value]

    def handle_endtag(self, tag: str) -> None:
        """Note where the parser is."""
        self.inside.pop()

    def handle_data(self, data: str) -> None:
        """Keep a text, unless it is shown without JavaScript only."""
        if data.strip() and "noscript" not in self.inside:
            self.texts.append(data.strip())


def test_the_markup_has_no_text_but_the_name() -> None:
    markup = _Markup()
    markup.feed((PAGE / "index.html").read_text())
    assert set(markup.texts) == {"Waylog"}
