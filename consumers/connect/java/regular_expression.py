"""Regular expressions that are written for `java.util.regex`, run by Python's.

Connectors name topics and routes by them (RegexRouter, TopicNameMatches, `topics.regex`). What
both write the same is left alone; named groups, quoting and Java's character classes are rewritten.
"""

from __future__ import annotations

import re
from typing import Final

_CLASSES: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": "\\x00-\\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": "!-/:-@\\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": " \\t",
    "Cntrl": "\\x00-\\x1f\\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": " \\t\\n\\x0b\\f\\r",
}
_ESCAPES: Final = {"h": " \\t\\xa0", "e": "\\x1b"}
_CLASS_NAME: Final = re.compile(r"([pP])\{(?:Is)?(\w+)\}")
_GROUP_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
_GROUP_REFERENCE: Final = re.compile(r"k<([a-zA-Z][a-zA-Z0-9]*)>")


class JavaRegexError(ValueError):
    """The expression is not valid, or uses what Python's expressions cannot do."""


def compile_java(expression: str) -> re.Pattern[str]:
    r"""Compile an expression of Java; raises JavaRegexError.

    Not supported: `\p` with names of Unicode scripts and blocks, intersections `&&` and nested
    classes, `\G`, `\R` and `\X`.
    """
    try:
        return re.compile(_translate(expression), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise JavaRegexError(str(error)) from error


def _translate(expression: str) -> str:
    parts: list[str] = []
    position = 0
    in_class = False
    while position < len(expression):
        rest = expression[position:]
        if rest.startswith("\\Q"):
            quoted, _, _ = expression[position + 2 :].partition("\\E")
            parts.append(re.escape(quoted))
            position += len(quoted) + 4
        elif rest[0] == "\\":
            text, length = _escape(expression, position + 1, in_class)
            parts.append(text)
            position += 1 + length
        elif in_class:
            if rest.startswith("&&"):
                raise JavaRegexError("intersections of character classes are not supported")
            if rest[0] == "[":
                raise JavaRegexError("nested character classes are not supported")
            in_class = rest[0] != "]"
            # Two of a kind will be an operator of sets in some later Python.
            again = rest[0] in "-|~&" and parts[-1] == rest[0]
            parts.append("\\" + rest[0] if again else rest[0])
            position += 1
        elif rest[0] == "[":
            in_class = True
            head = "[^" if rest.startswith("[^") else "["
            parts.append(head)
            position += len(head)
            if expression.startswith("]", position):
                # The first one is a member.
                parts.append("\\]")
                position += 1
        elif rest.startswith("(?<") and not rest.startswith(("(?<=", "(?<!")):
            parts.append("(?P<")
            position += 3
        else:
            parts.append(rest[0])
            position += 1
    return "".join(parts)


def _escape(expression: str, position: int, in_class: bool) -> tuple[str, int]:
    """Return what stands for an escape, and the length of what follows its backslash."""
    if position >= len(expression):
        raise JavaRegexError("the expression ends with a backslash")
    character = expression[position]
    named = _CLASS_NAME.match(expression, position)
    if named is not None:
        members = _CLASSES.get(named[2])
        if members is None:
            raise JavaRegexError(f"unknown character class \\{named[0]}")
        if named[1] == "P":
            if in_class:
                raise JavaRegexError(f"\\{named[0]} within a character class is not supported")
            return f"[^{members}]", len(named[0])
        return members if in_class else f"[{members}]", len(named[0])
    reference = _GROUP_REFERENCE.match(expression, position)
    if reference is not None:
        return f"(?P={reference[1]})", len(reference[0])
    if character in _ESCAPES:
        members = _ESCAPES[character]
        return members if in_class else f"[{members}]", 1
    if character == "z":
        return "\\Z", 1
    if character == "Z":
        return "(?=\\n?\\Z)", 1
    return "\\" + character, 1


def replace_first(pattern: re.Pattern[str], replacement: str, text: str) -> str:
    r"""Return the text with the first match replaced, as `Matcher.replaceFirst` does.

    `$1` and `${name}` are groups, a backslash quotes the next character. Raises JavaRegexError for
    a replacement that is not valid.
    """
    match = pattern.search(text)
    if match is None:
        return text
    return text[: match.start()] + _expand(match, replacement) + text[match.end() :]


def check_replacement(pattern: re.Pattern[str], replacement: str) -> None:
    """Raise JavaRegexError if the replacement names groups that the expression does not have."""
    # A match of as many groups, all of them empty.
    names = dict(pattern.groupindex)
    groups = "".join(
        f"(?P<{name}>)" if (name := _name_of(names, number)) else "()"
        for number in range(1, pattern.groups + 1)
    )
    empty = re.compile(groups).match("")
    assert empty is not None, "empty groups match an empty text"
    _expand(empty, replacement)


def _name_of(names: dict[str, int], number: int) -> str | None:
    return next((name for name, each in names.items() if each == number), None)


def _expand(match: re.Match[str], replacement: str) -> str:
    parts: list[str] = []
    position = 0
    while position < len(replacement):
        character = replacement[position]
        position += 1
        if character == "\\":
            if position == len(replacement):
                raise JavaRegexError("character to be escaped is missing")
            parts.append(replacement[position])
            position += 1
        elif character == "$":
            group, position = _group(match, replacement, position)
            parts.append(match[group] or "")
        else:
            parts.append(character)
    return "".join(parts)


def _group(match: re.Match[str], replacement: str, position: int) -> tuple[int | str, int]:
    if replacement[position : position + 1] == "{":
        name = _GROUP_NAME.match(replacement, position + 1)
        if name is None or replacement[name.end() : name.end() + 1] != "}":
            raise JavaRegexError("named capturing group is missing trailing '}'")
        if name[0] not in match.re.groupindex:
            raise JavaRegexError(f"No group with name {{{name[0]}}}")
        return name[0], name.end() + 1
    digits = replacement[position : position + 1]
    if not ("0" <= digits <= "9"):
        raise JavaRegexError("Illegal group reference")
    position += 1
    if int(digits) > match.re.groups:
        raise JavaRegexError(f"No group {digits}")
    # More digits belong to the number as long as there is such a group.
    while "0" <= (digit := replacement[position : position + 1]) <= "9":
        if int(digits + digit) > match.re.groups:
            break
        digits += digit
        position += 1
    return int(digits), position
