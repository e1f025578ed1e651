"""The principal of a client, and its derivation from the name in a certificate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from waylog.config import ConfigError

USER: Final = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """A kind and a name, written `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Read `User:alice`; raises ValueError."""
        kind, separator, name = text.partition(":")
        if not separator or not kind or not name:
            raise ValueError(f"{text!r} is not a principal: User:NAME is expected")
        return cls(kind, name)


#: The principal of every client on a listener without authentication.
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")

# Attributes for which RFC 2253 has a short name. Java writes the others by object identifier; here
# they keep OpenSSL's name.
_SHORT_NAMES: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ESCAPED: Final = re.compile(r'([,+"\\<>;])')


def distinguished_name(certificate: dict[str, Any]) -> str:
    """Format the subject of `SSLSocket.getpeercert()` as in RFC 2253, last part first."""
    parts = []
    for relative in reversed(certificate.get("subject", ())):
        words = []
        for name, value in relative:
            text = _ESCAPED.sub(r"\\\1", value)
            if text.startswith(("#", " ")):
                text = "\\" + text
            if text.endswith(" "):
                text = text[:-1] + "\\ "
            words.append(f"{_SHORT_NAMES.get(name, name)}={text}")
        parts.append("+".join(words))
    return ",".join(parts)


_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)\s*")
_GROUP: Final = re.compile(r"\$(\d)")


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        mapped = _GROUP.sub(lambda group: match[int(group[1])] or "", self.replacement)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


class PrincipalMapper:
    """`ssl.principal.mapping.rules`: the first rule that matches the whole name is used.

    A rule is `DEFAULT` (the name as it is) or `RULE:pattern/replacement/`, optionally with `L` or
    `U` for lower or upper case. Without rules every name stays as it is. Raises ConfigError.
    """

    def __init__(self, rules: str = "DEFAULT") -> None:
        self._rules: list[_Rule | None] = []
        position = 0
        text = rules.strip()
        while position < len(text):
            if text.startswith("DEFAULT", position):
                self._rules.append(None)
                position += len("DEFAULT")
            elif (match := _RULE.match(text, position)) is not None:
                try:
                    pattern = re.compile(match[1])
                except re.error as error:
                    raise ConfigError(f"ssl.principal.mapping.rules: {match[1]}: {error}") from None
                self._rules.append(_Rule(pattern, match[2], match[3]))
                position = match.end()
            else:
                raise ConfigError(
                    f"ssl.principal.mapping.rules: {text[position:]!r}: DEFAULT or "
                    "RULE:pattern/replacement/[LU] is expected"
                )
            while position < len(text) and text[position] in ", \t":
                position += 1

    def principal(self, name: str) -> Principal:
        """Return the principal of a name; ANONYMOUS if no rule matches."""
        for rule in self._rules:
            mapped = name if rule is None else rule.apply(name)
            if mapped is not None:
                return Principal(USER, mapped)
        return ANONYMOUS
