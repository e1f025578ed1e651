"""The converters and transforms of a task, as the connector or the worker names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from consumers.connect.configuration.connector_properties import (
    HEADER_CONVERTER,
    KEY_CONVERTER,
    VALUE_CONVERTER,
)
from consumers.connect.configuration.plugin_properties import with_prefix
from consumers.connect.converters.by_name import make_converter, make_header_converter
from consumers.connect.converters.converter import Converter, HeaderConverter
from consumers.connect.transforms.chain import TransformChain

_SIMPLE: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


class Pipeline(NamedTuple):
    """What a record goes through between the log and the task."""

    key: Converter
    value: Converter
    header: HeaderConverter
    transforms: TransformChain


def make_pipeline(worker: Mapping[str, str], connector: Mapping[str, str]) -> Pipeline:
    """Return converters and transforms; those of the connector win. Raises ConfigException.

    `worker` and `connector` are all their properties, with variables replaced.
    """

    def source(name: str) -> Mapping[str, str]:
        return connector if connector.get(name) is not None else worker

    def of(name: str) -> Converter:
        properties = source(name)
        return make_converter(name, properties.get(name, ""), with_prefix(properties, f"{name}."))

    headers = source(HEADER_CONVERTER)
    return Pipeline(
        of(KEY_CONVERTER),
        of(VALUE_CONVERTER),
        make_header_converter(
            headers.get(HEADER_CONVERTER, _SIMPLE), with_prefix(headers, f"{HEADER_CONVERTER}.")
        ),
        TransformChain(connector),
    )
