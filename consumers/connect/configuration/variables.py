"""Variables in configurations, `${provider:path:key}`, replaced where a connector is started.

What is stored and answered has the variable, never what it stands for (KIP-297). The providers are
those that Kafka ships, by the names that its documentation gives them:

| variable | is |
|---|---|
| `${file:/etc/secrets.properties:password}` | a line of a Java properties file |
| `${dir:/run/secrets:password}` | the whole text of a file in a directory |
| `${env:NAME}`, `${env::NAME}` | a variable of the environment |

Nothing is read here: each provider is given a function that reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.java.properties_file import PropertiesError, parse_properties
from consumers.connect.java.regular_expression import JavaRegexError, compile_java

_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
#: Shorter texts are not looked for in messages: they say nothing, and are in any message.
_SECRET_CHARACTERS_MIN: Final = 4
#: What a text has in the place of what a variable stands for.
HIDDEN_PART: Final = "[hidden]"
#: Returns the text of a file; raises OSError, ValueError for one that is no UTF-8.
ReadFile = Callable[[str], str]


class Provider(Protocol):
    """Finds what variables stand for."""

    def get(self, path: str, key: str) -> str | None:
        """Return the value, None if there is none; raises ConfigException."""


class FileProvider:
    """Lines of Java properties files."""

    def __init__(self, read: ReadFile, is_allowed: Callable[[str], bool]) -> None:
        """`is_allowed` says whether a path may be read (`allowed.paths`)."""
        self._read: Final = read
        self._is_allowed: Final = is_allowed

    def get(self, path: str, key: str) -> str | None:
        """Return a line's value; ConfigException if the file cannot be read."""
        if not path or not self._is_allowed(path):
            return None
        try:
            return parse_properties(self._read(path)).get(key)
        except (OSError, ValueError, PropertiesError) as error:
            # The error of a decoder shows a part of the file.
            text = f"Could not read properties from file {path}"
            raise ConfigException(text) from (error if isinstance(error, OSError) else None)


class DirectoryProvider:
    """Whole files of a directory, as Kubernetes mounts secrets."""

    def __init__(self, read: ReadFile, is_allowed: Callable[[str], bool]) -> None:
        """`is_allowed` says whether a path may be read (`allowed.paths`)."""
        self._read: Final = read
        self._is_allowed: Final = is_allowed

    def get(self, path: str, key: str) -> str | None:
        """Return a file's text, None if there is none; ConfigException if it cannot be read."""
        if not path or not key or "/" in key or key in (".", ".."):
            return None
        name = f"{path.rstrip('/')}/{key}"
        if not self._is_allowed(name):
            return None
        try:
            return self._read(name)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except (OSError, ValueError) as error:
            text = f"Could not read file {name} for property {key}"
            raise ConfigException(text) from (error if isinstance(error, OSError) else None)


class EnvironmentProvider:
    """Variables of the environment."""

    def __init__(self, environment: Mapping[str, str], allowed_names: str = ".*") -> None:
        """`allowed_names` is an expression for names (`allowlist.pattern`); ConfigException."""
        self._environment: Final = environment
        try:
            self._allowed: Final = compile_java(allowed_names)
        except JavaRegexError as error:
            raise ConfigException(f"Invalid allowlist.pattern: {error}") from error

    def get(self, path: str, key: str) -> str | None:
        """Return a variable's value; ConfigException for a path, since there are none."""
        if path:
            raise ConfigException(
                f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'"
            )
        return self._environment.get(key) if self._allowed.fullmatch(key) else None


class Resolved(NamedTuple):
    """A configuration with the values of its variables. It must not be stored, shown or logged."""

    properties: dict[str, str | None]
    #: By property, what its variables stand for.
    secrets: dict[str, tuple[str, ...]]

    def without_secrets(self, message: str, name: str, raw: str | None) -> str:
        """Return a message about a property that does not show what variables stand for.

        `raw` is the property's text as it is stored.
        """
        own = [each for each in self.secrets.get(name, ()) if each]
        if any(part in message for secret in own for part in _parts(secret)):
            return (
                f"Invalid value {raw} for configuration {name}: "
                "what its variable stands for is not valid"
            )
        for secrets in self.secrets.values():
            for secret in secrets:
                for part in _parts(secret):
                    if len(part) >= _SECRET_CHARACTERS_MIN:
                        message = message.replace(part, HIDDEN_PART)
        return message


def _parts(secret: str) -> list[str]:
    """Return the secret and what messages may show of it, longest first."""
    parts = {secret, secret.strip(), *(part.strip() for part in secret.split(","))}
    return sorted((part for part in parts if part), key=len, reverse=True)


class Variables:
    """Replaces variables by what their providers say."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        """`providers` are by name, as `config.providers` of a worker names them."""
        self._providers: Final = dict(providers)

    def resolve(self, properties: Mapping[str, str | None]) -> Resolved:
        """Return the configuration with variables replaced; raises ConfigException.

        A variable of an unknown provider, or one without a value, stays as it is written. What a
        variable stands for is not looked through for further variables.
        """
        known: dict[tuple[str, str, str], str | None] = {}
        secrets: dict[str, tuple[str, ...]] = {}

        def look_up(provider: str, path: str, key: str) -> str | None:
            variable = (provider, path, key)
            if variable not in known:
                known[variable] = self._providers[provider].get(path, key)
            return known[variable]

        def resolve_text(name: str, text: str) -> str:
            found: list[str] = []

            def replacement(match: re.Match[str]) -> str:
                if match[1] not in self._providers:
                    return match[0]
                value = look_up(match[1], match[2] or "", match[3])
                if value is None:
                    return match[0]
                found.append(value)
                return value

            resolved = _VARIABLE.sub(replacement, text)
            if found:
                secrets[name] = (*found, resolved)
            return resolved

        return Resolved(
            {
                name: None if text is None else resolve_text(name, text)
                for name, text in properties.items()
            },
            secrets,
        )


NO_VARIABLES: Final = Variables({})


def has_variable(text: str) -> bool:
    """Return whether a text has a variable, of whatever provider."""
    return _VARIABLE.search(text) is not None
