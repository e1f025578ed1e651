"""Transforms and predicates by the names that configurations give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from consumers.connect.configuration.plugins import Plugin, PluginKind, aliases_of
from consumers.connect.transforms.cast import Cast
from consumers.connect.transforms.extract_field import ExtractField
from consumers.connect.transforms.flatten import Flatten
from consumers.connect.transforms.header_transforms import DropHeaders, HeaderFrom, InsertHeader
from consumers.connect.transforms.hoist_field import HoistField, ValueToKey
from consumers.connect.transforms.insert_field import InsertField
from consumers.connect.transforms.mask_field import MaskField
from consumers.connect.transforms.predicates import (
    HasHeaderKey,
    Predicate,
    RecordIsTombstone,
    TopicNameMatches,
)
from consumers.connect.transforms.replace_field import ReplaceField, SetSchemaMetadata
from consumers.connect.transforms.timestamp_converter import TimestampConverter
from consumers.connect.transforms.topic_transforms import Filter, RegexRouter, TimestampRouter
from consumers.connect.transforms.transform import KEY, VALUE, Side, Transform

_TRANSFORMS: Final[tuple[type[Transform], ...]] = (
    *(Cast, DropHeaders, ExtractField, Filter, Flatten, HeaderFrom, HoistField, InsertField),
    *(InsertHeader, MaskField, RegexRouter, ReplaceField, SetSchemaMetadata),
    *(TimestampConverter, TimestampRouter, ValueToKey),
)
_PREDICATES: Final[tuple[type[Predicate], ...]] = (
    *(HasHeaderKey, RecordIsTombstone, TopicNameMatches),
)


class SidedTransform(NamedTuple):
    """A transform's class for one side of records."""

    name: str  # as Kafka Connect writes it
    transform: type[Transform]
    side: Side

    def make(self, properties: Mapping[str, Any]) -> Transform:
        """Return the transform; raises ConfigException."""
        return self.transform(properties, self.side)


def _transforms() -> dict[str, SidedTransform]:
    by_name: dict[str, SidedTransform] = {}
    for transform in _TRANSFORMS:
        own_name = f"{transform.__module__}.{transform.__name__}"
        for side in (KEY, VALUE) if transform.has_sides else (VALUE,):
            suffix = f"${side.name}" if transform.has_sides else ""
            full_name = transform.kafka_name + suffix
            sided = SidedTransform(full_name, transform, side)
            for name in aliases_of(full_name, PluginKind.TRANSFORMATION):
                by_name[name] = sided
            by_name[own_name + suffix] = sided
    return by_name


TRANSFORMS: Final = _transforms()
PREDICATES: Final = {
    name: predicate
    for predicate in _PREDICATES
    for name in (
        *aliases_of(predicate.kafka_name, PluginKind.PREDICATE),
        f"{predicate.__module__}.{predicate.__name__}",
    )
}


def transform_plugins() -> dict[PluginKind, dict[str, Plugin]]:
    """Return transforms and predicates by kind and name, for `PluginTable`."""
    return {
        PluginKind.TRANSFORMATION: {
            name: Plugin(sided.name, sided.transform.config, sided.make)
            for name, sided in TRANSFORMS.items()
        },
        PluginKind.PREDICATE: {
            name: Plugin(predicate.kafka_name, predicate.config, predicate)
            for name, predicate in PREDICATES.items()
        },
    }
