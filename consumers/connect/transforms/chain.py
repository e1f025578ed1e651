"""The transforms of a connector, one after the other, as its configuration lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from consumers.connect.configuration.connector_properties import PREDICATES as PREDICATE_LIST
from consumers.connect.configuration.connector_properties import TRANSFORMS as TRANSFORM_LIST
from consumers.connect.configuration.definitions import ConfigType, parse_type
from consumers.connect.configuration.exceptions import missing, unknown_class
from consumers.connect.configuration.plugin_properties import (
    NEGATE,
    PREDICATE,
    TYPE,
    aliases_of_list,
    with_prefix,
)
from consumers.connect.data.records import Record
from consumers.connect.transforms.by_name import PREDICATES, TRANSFORMS
from consumers.connect.transforms.predicates import Predicate
from consumers.connect.transforms.transform import Transform


class Stage(NamedTuple):
    """A transform, and of which records it is one."""

    transform: Transform
    predicate: Predicate | None
    negate: bool

    def apply(self, record: Record) -> Record | None:
        """Return the record as it goes on, None if it is left out; raises DataException."""
        if self.predicate is None or self.predicate.test(record) is not self.negate:
            return self.transform.apply(record)
        return record


class TransformChain:
    """All transforms of a connector.

    A worker that reports errors calls `apply` of each of `stages`, to know which has failed.
    """

    __slots__ = ("stages",)

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """`properties` are all of the connector, variables replaced; raises ConfigException."""
        self.stages: Final = tuple(
            _stage(alias, properties) for alias in aliases_of_list(TRANSFORM_LIST, properties)
        )

    def apply(self, record: Record) -> Record | None:
        """Return the record behind all transforms, None if one leaves it out.

        Raises DataException.
        """
        current: Record | None = record
        for stage in self.stages:
            if current is None:
                break
            current = stage.apply(current)
        return current


def _stage(alias: str, properties: Mapping[str, Any]) -> Stage:
    prefix = f"{TRANSFORM_LIST}.{alias}."
    own = with_prefix(properties, prefix)
    name = _required(own, prefix + TYPE)
    sided = TRANSFORMS.get(name)
    if sided is None:
        raise unknown_class(prefix + TYPE, name)
    named = own.pop(PREDICATE, None)
    negate = bool(parse_type(prefix + NEGATE, own.pop(NEGATE, None), ConfigType.BOOLEAN))
    transform = sided.make(own)
    if named is None:
        return Stage(transform, None, negate=False)
    predicate_prefix = f"{PREDICATE_LIST}.{named.strip()}."
    of_predicate = with_prefix(properties, predicate_prefix)
    predicate_name = _required(of_predicate, predicate_prefix + TYPE)
    predicate = PREDICATES.get(predicate_name)
    if predicate is None:
        raise unknown_class(predicate_prefix + TYPE, predicate_name)
    return Stage(transform, predicate(of_predicate), negate)


def _required(properties: Mapping[str, Any], name: str) -> str:
    value = properties.get(TYPE)
    if value is None:
        raise missing(name)
    return str(value).strip()
