"""Bodies of requests, and files of connectors, as the herder takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from consumers.connect.configuration.connector_properties import NAME
from consumers.connect.configuration.definitions import texts_of_json
from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.herder.answers import ConnectorOffset
from consumers.connect.herder.refusals import BadRequest, Refused
from consumers.connect.java.properties_file import PropertiesError, parse_properties
from consumers.connect.storage.states import TargetState
from waylog.malformed import MALFORMED

Texts = dict[str, str | None]
_INITIAL_STATES: Final = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}


class CreateRequest(NamedTuple):
    """A connector to create (KIP-980: with its first state)."""

    name: str
    config: Texts
    target: TargetState | None = None


class UnreadableBody(Refused):
    """The body of a request is not what it should be: 500, as in Kafka."""


def named(name: str, config: Mapping[str, str | None]) -> Texts:
    """Return the configuration with its connector's name; raises BadRequest if it has another."""
    included = config.get(NAME)
    if included is not None and included != name:
        raise BadRequest(
            f"Connector name configuration ({included}) doesn't match connector name in the URL "
            f"({name})"
        )
    return {**config, NAME: name}


def texts(body: Any) -> Texts:
    """Return the properties of a JSON object; raises UnreadableBody."""
    if not isinstance(body, dict):
        raise UnreadableBody("A JSON object of texts is expected")
    try:
        return texts_of_json(body)
    except ConfigException as error:
        raise UnreadableBody(str(error)) from error


def create_request(body: Any) -> CreateRequest:
    """Return what POST /connectors asks for; raises Refused."""
    if not isinstance(body, dict):
        raise UnreadableBody("A JSON object with the members name and config is expected")
    unknown = body.keys() - {"name", "config", "initial_state"}
    if unknown:
        raise UnreadableBody(
            f'Unrecognized field "{min(unknown)}": known are name, config and initial_state'
        )
    if body.get("config") is None:
        raise BadRequest("The member config, with the connector's configuration, is missing")
    config = texts(body["config"])
    name = body.get("name")
    if name is not None and not isinstance(name, str):
        raise UnreadableBody("The member name is a text")
    trimmed = (name or "").strip()
    return CreateRequest(trimmed, named(trimmed, config), _initial_state(body.get("initial_state")))


def _initial_state(text: Any) -> TargetState | None:
    if text is None:
        return None
    target = _INITIAL_STATES.get(text.upper()) if isinstance(text, str) else None
    if target is None:
        raise UnreadableBody(
            f'Invalid initial_state "{text}": one of {", ".join(_INITIAL_STATES)} is expected'
        )
    return target


def offsets_request(body: Any) -> list[ConnectorOffset]:
    """Return the offsets that PATCH /connectors/NAME/offsets names; raises Refused."""
    try:
        offsets = msgspec.convert(body, _Offsets).offsets
    except MALFORMED as error:
        raise UnreadableBody(str(error)) from error
    if not offsets:
        raise BadRequest("Partitions / offsets need to be provided for an alter offsets request")
    return [ConnectorOffset(each.partition, each.offset) for each in offsets]


class _Offset(msgspec.Struct, forbid_unknown_fields=True):
    partition: dict[str, Any] | None = None
    offset: dict[str, Any] | None = None


class _Offsets(msgspec.Struct, forbid_unknown_fields=True):
    offsets: list[_Offset] | None = None


def parse_connector_file(text: str, path: str) -> CreateRequest:
    """Return the connector that a file describes, in one of three forms.

    JSON with the configuration, JSON as POST /connectors takes it, or a properties file. Raises
    ConnectException with a message that names the file.
    """
    try:
        body = msgspec.json.decode(text)
    except MALFORMED as error:
        if text.lstrip().startswith("{"):
            raise ConnectException(f"{path}: {error}") from error
        return _of_properties(text, path)
    if not isinstance(body, dict):
        return _of_properties(text, path)
    if isinstance(body.get("config"), dict):
        known = {each: body[each] for each in ("name", "config", "initial_state") if each in body}
        try:
            request = create_request(known)
        except Refused as error:
            raise ConnectException(f"{path}: {error}") from error
        if not request.name:
            raise _nameless(path)
        return request
    try:
        config = texts_of_json(body)
    except ConfigException as error:
        raise ConnectException(f"{path}: {error}") from error
    return _named_file(config, path)


def _of_properties(text: str, path: str) -> CreateRequest:
    try:
        properties = parse_properties(text)
    except PropertiesError as error:
        raise ConnectException(f"{path}: {error}") from error
    return _named_file({**properties}, path)


def _named_file(config: Texts, path: str) -> CreateRequest:
    name = config.get(NAME)
    if name is None:
        raise _nameless(path)
    return CreateRequest(name, config)


def _nameless(path: str) -> ConnectException:
    return ConnectException(
        f"Connector configuration at '{path}' is missing the mandatory 'name' configuration"
    )
