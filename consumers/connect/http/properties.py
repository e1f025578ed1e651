"""The properties of HttpSink."""

from __future__ import annotations

import html
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus, urlsplit

import msgspec

from consumers.connect.configuration.definitions import (
    ConfigDef,
    ConfigType,
    ConfigValue,
    Importance,
    grouped_key,
)
from consumers.connect.configuration.exceptions import ConfigException, hidden_value, invalid_value
from consumers.connect.configuration.password import Password
from consumers.connect.configuration.validators import at_least, between, one_of
from consumers.connect.http.request_headers import (
    HEADER_TEXT,
    LOGIN_GROUP,
    LOGIN_KEYS,
    authorization,
    checked_headers,
    header_errors,
    login_contradictions,
)
from consumers.connect.http.server_url import parts_of_url
from consumers.connect.http.templates.by_name import BATCHING, OWN, TEMPLATES
from consumers.connect.http.templates.device_names import DeviceNames
from consumers.connect.http.templates.own import BatchForm, OwnTemplate
from consumers.connect.http.templates.template import Template
from consumers.connect.plugins.backoff import Backoff, backoff_keys
from waylog.network.outbound.webhook_signature import signing_key

URL: Final = "url"
TEMPLATE: Final = "template"
METHOD: Final = "method"
BODY: Final = "body.template"
CONTENT_TYPE: Final = "content.type"
SIGNATURE: Final = "signature.secret"
BATCH: Final = "batch.max.records"
BATCH_PREFIX: Final = "batch.prefix"
BATCH_SEPARATOR: Final = "batch.separator"
BATCH_SUFFIX: Final = "batch.suffix"
NULLS: Final = "behavior.on.null.values"
NAMES: Final = "device.names"
CONNECTIONS: Final = "connections.max"
TIMEOUT: Final = "request.timeout.ms"
MAX_RETRIES: Final = "max.retries"

_REQUEST, _BATCHES, _DELIVERY = "Request", "Batches", "Delivery"
_SINGLE_QUOTES: Final = ("&#x27;", "&#39;", "&apos;", "'")
_ESCAPES: Final = {r"\n": "\n", r"\r": "\r", r"\t": "\t"}


def _valid_url(name: str, value: Any) -> None:
    """Raise ConfigException, which shows nothing of the URL."""
    if value is not None and "$" in parts_of_url(name, value).netloc:
        raise hidden_value(name, "the server cannot depend on the record")


def _valid_names(_: str, value: Any) -> None:
    if value is not None:
        DeviceNames(value)


def _valid_secret(name: str, value: Any) -> None:
    if isinstance(value, Password):
        try:
            signing_key(value.value)
        except ValueError as error:
            raise hidden_value(name, str(error)) from None


CONFIG: Final = ConfigDef(
    [
        grouped_key(
            *(URL, ConfigType.STRING, _REQUEST, 1),
            "Where requests go. With a template of a server its address, to which a path is added "
            "where it has none; without one, ${field} is filled in.",
            importance=Importance.HIGH,
            validator=_valid_url,
        ),
        grouped_key(
            *(TEMPLATE, ConfigType.STRING, _REQUEST, 2),
            "What the server is; none for requests as method and body.template describe them.",
            importance=Importance.HIGH,
            default=OWN,
            validator=one_of(OWN, *TEMPLATES),
        ),
        grouped_key(
            *(METHOD, ConfigType.STRING, _REQUEST, 3),
            "The method, without a template of a server.",
            importance=Importance.MEDIUM,
            default="POST",
            validator=one_of("POST", "PUT", "PATCH", "GET", "DELETE"),
        ),
        grouped_key(
            *(BODY, ConfigType.STRING, _REQUEST, 4),
            "The body for a record, in which ${field} is filled in; without it the value as JSON, "
            "or as it is if it is a text or bytes.",
            importance=Importance.MEDIUM,
            default=None,
        ),
        grouped_key(
            *(CONTENT_TYPE, ConfigType.STRING, _REQUEST, 5),
            "The type of the body, by which values are written into body.template.",
            importance=Importance.MEDIUM,
            default="application/json",
        ),
        grouped_key(
            *(NAMES, ConfigType.LIST, _REQUEST, 6),
            "What a server calls devices: USER/DEVICE=NAME, separated by commas.",
            importance=Importance.MEDIUM,
            default=[],
            validator=_valid_names,
        ),
        grouped_key(
            *(NULLS, ConfigType.STRING, _REQUEST, 7),
            "What becomes of a record without a value: ignore leaves it out, fail reports it, "
            "delete sends a DELETE to the URL with ${@key} filled in.",
            importance=Importance.LOW,
            default="ignore",
            validator=one_of("ignore", "fail", "delete"),
        ),
        *LOGIN_KEYS,
        grouped_key(
            *(SIGNATURE, ConfigType.PASSWORD, LOGIN_GROUP, 5),
            "Signs each request as Standard Webhooks has it (HMAC-SHA256); a text, or whsec_ and "
            "Base64.",
            importance=Importance.MEDIUM,
            default=None,
            validator=_valid_secret,
        ),
        grouped_key(
            *(BATCH, ConfigType.INT, _BATCHES, 1),
            "The most records of one request; 0: 100 where the template takes several, else 1.",
            importance=Importance.MEDIUM,
            default=0,
            validator=between(0, 10_000),
        ),
        grouped_key(
            *(BATCH_PREFIX, ConfigType.STRING, _BATCHES, 2),
            "What is before the bodies of several records.",
            importance=Importance.LOW,
            default="[",
        ),
        grouped_key(
            *(BATCH_SEPARATOR, ConfigType.STRING, _BATCHES, 3),
            r"What is between them; \n is a line feed.",
            importance=Importance.LOW,
            default=",",
        ),
        grouped_key(
            *(BATCH_SUFFIX, ConfigType.STRING, _BATCHES, 4),
            "What is behind them.",
            importance=Importance.LOW,
            default="]",
        ),
        grouped_key(
            *(CONNECTIONS, ConfigType.INT, _DELIVERY, 1),
            "The most requests of a task at once. Those of the same key follow each other.",
            importance=Importance.MEDIUM,
            default=8,
            validator=between(1, 256),
        ),
        grouped_key(
            *(TIMEOUT, ConfigType.INT, _DELIVERY, 2),
            "Milliseconds for a request and its answer.",
            importance=Importance.MEDIUM,
            default=30_000,
            validator=between(100, 120_000),
        ),
        grouped_key(
            *(MAX_RETRIES, ConfigType.INT, _DELIVERY, 3),
            "How often a request is repeated; -1: for ever. Then a record that the server has "
            "answered is reported, and if it cannot be reached the task fails.",
            importance=Importance.MEDIUM,
            default=-1,
            validator=at_least(-1),
        ),
        *backoff_keys(_DELIVERY, 4),
    ]
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The properties, parsed."""

    template: Template
    url: str
    headers: dict[str, str]  # of all requests
    secrets: tuple[str, ...]  # what no message may show
    signing_key: bytes | None
    batch_records: int
    nulls: str
    connections: int
    timeout_s: float
    retries_max: int  # -1: no limit
    backoff: Backoff

    @staticmethod
    def of(properties: Mapping[str, Any]) -> Settings:
        """Return what a connector's properties say; raises ConfigException."""
        parsed = CONFIG.parse(properties)
        for name, reason in contradictions(parsed):
            raise hidden_value(name, reason)
        headers = checked_headers(properties)
        template, batch_records = _template(parsed)
        login = authorization(parsed)
        secret = parsed[SIGNATURE]
        return Settings(
            template=template,
            url=parsed[URL],
            headers=headers | login,
            secrets=_secrets(parsed, headers | login),
            signing_key=None if secret is None else signing_key(secret.value),
            batch_records=batch_records,
            nulls=parsed[NULLS],
            connections=parsed[CONNECTIONS],
            timeout_s=parsed[TIMEOUT] / 1000,
            retries_max=parsed[MAX_RETRIES],
            backoff=Backoff.of(parsed),
        )


def _template(parsed: Mapping[str, Any]) -> tuple[Template, int]:
    """Return the template, and how many records a request has."""
    name, records = parsed[TEMPLATE], parsed[BATCH]
    if name != OWN:
        template = TEMPLATES[name](parsed[URL], DeviceNames(parsed[NAMES]))
        return template, records or template.batch_records
    batch = None
    if records > 1:
        texts = (parsed[BATCH_PREFIX], parsed[BATCH_SEPARATOR], parsed[BATCH_SUFFIX])
        batch = BatchForm(*(_unescaped(text) for text in texts))
    own = OwnTemplate(parsed[METHOD], parsed[URL], parsed[BODY], parsed[CONTENT_TYPE], batch)
    return own, records or 1


def _unescaped(text: str) -> str:
    for written, meant in _ESCAPES.items():
        text = text.replace(written, meant)
    return text


def _secrets(parsed: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return texts that an answer may repeat and no message may show, the longest first."""
    passwords = (each.value for each in parsed.values() if isinstance(each, Password))
    parts = urlsplit(parsed[URL])
    found = {*passwords, *headers.values(), parts.path.strip("/"), parts.query}
    found |= {part for part in parts.path.split("/") if len(part) >= 8}
    found |= {form for text in found for form in _escaped_forms(text)}
    return tuple(sorted((text for text in found if len(text) >= 3), key=len, reverse=True))


def _escaped_forms(text: str) -> Iterator[str]:
    """Yield a text as servers may write it in JSON, in HTML and in a path."""
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    for double, single in itertools.product(("&quot;", "&#34;", "&#x22;", '"'), _SINGLE_QUOTES):
        escaped = html.escape(text, quote=False)
        yield escaped.replace('"', double).replace("'", single)
    yield from (quote(text), quote(text, safe=""), quote_plus(text))


def contradictions(parsed: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return properties that do not go with others, each with the reason."""
    found = login_contradictions(parsed)
    template = parsed[TEMPLATE]
    own = template == OWN
    if not own and parsed[BODY] is not None:
        found.append((BODY, f"{TEMPLATE}={template} makes the body itself"))
    if not own and parsed[NULLS] == "delete":
        found.append((NULLS, f"{TEMPLATE}={template} deletes nothing"))
    if (parsed[BATCH] or 0) > 1 and not own and template not in BATCHING:
        found.append((BATCH, f"{TEMPLATE}={template} takes one record a request"))
    if (parsed[BATCH] or 0) > 1 and own and parsed[METHOD] in ("GET", "DELETE"):
        found.append((BATCH, f"{METHOD}={parsed[METHOD]} takes one record a request"))
    if own and parsed[URL] is not None and not found:
        try:
            made, _ = _template({**parsed, BATCH: parsed[BATCH] or 0})
        except ConfigException as error:
            name = BODY if str(error).startswith(BODY) else URL
            found.append((name, str(error)))
        else:
            fields = made.url_fields if isinstance(made, OwnTemplate) else []
            if fields and parsed[NULLS] == "delete":
                reason = (
                    f"a record without a value has no {fields[0]} for {URL}; ${{@key}} is there"
                )
                found.append((NULLS, reason))
    content_type = parsed[CONTENT_TYPE]
    if content_type is not None and not HEADER_TEXT.fullmatch(content_type):
        found.append((CONTENT_TYPE, "control characters are not allowed"))
    return found


def validated(properties: Mapping[str, Any]) -> dict[str, ConfigValue]:
    """Return what there is to say about each property, and about those that contradict."""
    found = CONFIG.validate(properties)
    parsed = {name: each.value for name, each in found.items()}
    if not any(each.errors for each in found.values()):
        for name, reason in contradictions(parsed):
            value = None if name == URL else parsed[name]
            found[name].errors.append(str(invalid_value(name, value, reason)))
    return found | header_errors(properties)
