"""Converters by the names that configurations give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.plugin_properties import CONVERTER_KINDS
from consumers.connect.configuration.plugins import Plugin, PluginKind, aliases_of
from consumers.connect.converters.avro_converter import AvroConverter
from consumers.connect.converters.converter import Converter, HeaderConverter
from consumers.connect.converters.json_converter import JsonConverter
from consumers.connect.converters.json_schema_converter import JsonSchemaConverter
from consumers.connect.converters.primitive_converters import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
)
from consumers.connect.converters.protobuf_converter import ProtobufConverter
from consumers.connect.converters.simple_header_converter import SimpleHeaderConverter
from consumers.connect.converters.string_converter import StringConverter

_CONVERTERS: Final[tuple[type[Converter], ...]] = (
    AvroConverter,
    *(BooleanConverter, ByteArrayConverter, DoubleConverter, FloatConverter, IntegerConverter),
    *(JsonConverter, JsonSchemaConverter, LongConverter, ProtobufConverter, ShortConverter),
    StringConverter,
)


def _names(
    classes: tuple[type[HeaderConverter], ...], kind: PluginKind
) -> dict[str, type[HeaderConverter]]:
    return {
        name: each
        for each in classes
        for name in (*aliases_of(each.kafka_name, kind), f"{each.__module__}.{each.__name__}")
    }


_CLASSES: Final = {
    PluginKind.CONVERTER: _names(_CONVERTERS, PluginKind.CONVERTER),
    PluginKind.HEADER_CONVERTER: _names(
        (*_CONVERTERS, SimpleHeaderConverter), PluginKind.HEADER_CONVERTER
    ),
}


def converter_plugins() -> dict[PluginKind, dict[str, Plugin]]:
    """Return the converters by kind and name, for `PluginTable`."""
    return {
        kind: {name: Plugin(each.kafka_name, each.config) for name, each in classes.items()}
        for kind, classes in _CLASSES.items()
    }


def make_converter(property_name: str, name: str, properties: Mapping[str, Any]) -> Converter:
    """Return the converter of `key.converter` or `value.converter`.

    `properties` are those behind `key.converter.` without it. Raises ConfigException, also for a
    class that is not known.
    """
    converter = _make(property_name, name, properties)
    assert isinstance(converter, Converter), "the kind says so"
    return converter


def make_header_converter(name: str, properties: Mapping[str, Any]) -> HeaderConverter:
    """Return the converter of `header.converter`; raises ConfigException."""
    return _make("header.converter", name, properties)


def _make(property_name: str, name: str, properties: Mapping[str, Any]) -> HeaderConverter:
    found = _CLASSES[CONVERTER_KINDS[property_name]].get(name.strip())
    if found is None:
        raise ConfigException(
            f"Invalid value {name} for configuration {property_name}: "
            f"Class {name} could not be found."
        )
    return found(properties)
