"""The properties of a connector's transforms, predicates and converters.

`transforms=route` makes `transforms.route.type` a property, and its value decides which others
there are (`transforms.route.regex`). What follows `value.converter.` is for that converter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from consumers.connect.configuration.connector_properties import (
    HEADER_CONVERTER,
    KEY_CONVERTER,
    PREDICATES,
    PREDICATES_GROUP,
    TRANSFORMS,
    TRANSFORMS_GROUP,
    VALUE_CONVERTER,
)
from consumers.connect.configuration.definitions import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    Width,
    parse_type,
)
from consumers.connect.configuration.exceptions import (
    ConfigException,
    invalid_value,
    unknown_class,
    with_full_name,
)
from consumers.connect.configuration.plugins import PluginKind, Plugins
from consumers.connect.configuration.validators import Validator
from consumers.connect.configuration.version_range import check_version, valid_range

TYPE: Final = "type"
PREDICATE: Final = "predicate"
NEGATE: Final = "negate"
PLUGIN_VERSION: Final = "plugin.version"
#: Every transform has these besides its own.
_IMPLICIT: Final = (
    ConfigKey(
        name=PREDICATE,
        type=ConfigType.STRING,
        default=None,
        documentation="The name of the predicate that decides whether the transform is applied.",
    ),
    ConfigKey(
        name=NEGATE,
        type=ConfigType.BOOLEAN,
        default=False,
        documentation="Whether the transform is applied where the predicate is false.",
    ),
)
CONVERTER_KINDS: Final = {
    KEY_CONVERTER: PluginKind.CONVERTER,
    VALUE_CONVERTER: PluginKind.CONVERTER,
    HEADER_CONVERTER: PluginKind.HEADER_CONVERTER,
}


class _Classes(NamedTuple):
    """Recommends the classes of a kind."""

    plugins: Plugins
    kind: PluginKind

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Sequence[str]:
        return self.plugins.names(self.kind)

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        return True


def known_class(plugins: Plugins, kind: PluginKind) -> Validator:
    """A class of a kind that the worker has, or none."""

    def validate(name: str, value: Any) -> None:
        if value is not None and plugins.find(kind, value) is None:
            raise unknown_class(name, value)

    return validate


def aliases_of_list(name: str, properties: Mapping[str, Any]) -> list[str]:
    """Return the names that `transforms` or `predicates` lists, each once."""
    try:
        listed = parse_type(name, properties.get(name), ConfigType.LIST) or []
    except ConfigException:
        return []  # the property's own validation says so
    return list(dict.fromkeys(each for each in listed if each))


def _type_validator(
    plugins: Plugins, kind: PluginKind, prefix: str, properties: Mapping[str, Any]
) -> Validator:
    find = known_class(plugins, kind)

    def validate(name: str, value: Any) -> None:
        negate, predicate = prefix + NEGATE, prefix + PREDICATE
        is_transform = kind is PluginKind.TRANSFORMATION
        if is_transform and negate in properties and predicate not in properties:
            raise ConfigException(
                f"Config '{negate}' was provided but there is no config '{predicate}' "
                "defining a predicate to be negated."
            )
        find(name, value)

    return validate


def _named_predicate(properties: Mapping[str, Any]) -> Validator:
    def validate(name: str, value: Any) -> None:
        if value is not None and value not in aliases_of_list(PREDICATES, properties):
            raise invalid_value(name, value, f"There is no such predicate in '{PREDICATES}'")

    return validate


def plugin_keys(properties: Mapping[str, Any], plugins: Plugins) -> list[ConfigKey]:
    """Return the properties of the transforms and predicates that a configuration names."""
    keys: list[ConfigKey] = []
    for kind, listing, title in (
        (PluginKind.TRANSFORMATION, TRANSFORMS, TRANSFORMS_GROUP),
        (PluginKind.PREDICATE, PREDICATES, PREDICATES_GROUP),
    ):
        for alias in aliases_of_list(listing, properties):
            prefix = f"{listing}.{alias}."
            group = f"{title}: {alias}"
            keys.append(
                ConfigKey(
                    name=prefix + TYPE,
                    type=ConfigType.CLASS,
                    validator=_type_validator(plugins, kind, prefix, properties),
                    importance=Importance.HIGH,
                    documentation=f"The class of {kind.value.lower()} '{alias}'.",
                    group=group,
                    order=0,
                    width=Width.LONG,
                    display_name=f"{kind.value} type for {alias}",
                    recommender=_Classes(plugins, kind),
                )
            )
            keys.append(
                ConfigKey(
                    name=prefix + PLUGIN_VERSION,
                    type=ConfigType.STRING,
                    default=None,
                    validator=valid_range,
                    importance=Importance.MEDIUM,
                    documentation=f"The versions of {kind.value.lower()} '{alias}' that are taken.",
                    group=group,
                    order=1,
                    width=Width.LONG,
                    display_name=f"{kind.value} version for {alias}",
                )
            )
            named = properties.get(prefix + TYPE)
            plugin = plugins.find(kind, named.strip()) if isinstance(named, str) else None
            if plugin is None:
                continue
            own = plugin.config
            if kind is PluginKind.TRANSFORMATION:
                implicit = {key.name for key in _IMPLICIT}
                rest = (key for key in own.keys.values() if key.name not in implicit)
                own = ConfigDef([*_IMPLICIT, *rest])
            for key in own.embedded(prefix, group, 2):
                if kind is PluginKind.TRANSFORMATION and key.name == prefix + PREDICATE:
                    keys.append(_with_validator(key, _named_predicate(properties)))
                else:
                    keys.append(key)
    return keys


def with_known_converters(config: ConfigDef, plugins: Plugins) -> ConfigDef:
    """Return the definition with converters that the worker has."""
    return ConfigDef(
        _with_validator(key, known_class(plugins, CONVERTER_KINDS[name]), plugins)
        if name in CONVERTER_KINDS
        else key
        for name, key in config.keys.items()
    )


def _with_validator(
    key: ConfigKey, validator: Validator, plugins: Plugins | None = None
) -> ConfigKey:
    recommender = key.recommender
    if plugins is not None:
        recommender = _Classes(plugins, CONVERTER_KINDS[key.name])
    return msgspec.structs.replace(key, validator=validator, recommender=recommender)


def with_prefix(properties: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the properties that begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in properties.items()
        if name.startswith(prefix)
    }


def validate_versions(
    properties: Mapping[str, str], plugins: Plugins, found: Mapping[str, ConfigValue]
) -> None:
    """Add to `found` which converters, transforms and predicates have no version that is taken."""
    named = [(name, f"{name}.{PLUGIN_VERSION}", kind) for name, kind in CONVERTER_KINDS.items()]
    for kind, listing in (
        (PluginKind.TRANSFORMATION, TRANSFORMS),
        (PluginKind.PREDICATE, PREDICATES),
    ):
        for alias in aliases_of_list(listing, properties):
            prefix = f"{listing}.{alias}."
            named.append((prefix + TYPE, prefix + PLUGIN_VERSION, kind))
    for name, wanted, kind in named:
        plugin = plugins.find(kind, properties.get(name, "").strip())
        if plugin is None:
            continue
        try:
            check_version(wanted, properties.get(wanted), plugin.name, plugins.version)
        except ConfigException as error:
            found[wanted].errors = [*found[wanted].errors, str(error)]


def validate_plugins(
    properties: Mapping[str, str], plugins: Plugins, found: Mapping[str, ConfigValue]
) -> None:
    """Add to `found` why a transform or predicate cannot be made although each of its properties
    is valid: a replacement names a group that the expression does not have.
    """
    for kind, listing in (
        (PluginKind.TRANSFORMATION, TRANSFORMS),
        (PluginKind.PREDICATE, PREDICATES),
    ):
        for alias in aliases_of_list(listing, properties):
            prefix = f"{listing}.{alias}."
            plugin = plugins.find(kind, properties.get(prefix + TYPE, "").strip())
            has_errors = any(
                value.errors for name, value in found.items() if name.startswith(prefix)
            )
            if plugin is None or plugin.make is None or has_errors:
                continue
            try:
                plugin.make(with_prefix(properties, prefix))
            except ConfigException as error:
                value, text = found[prefix + TYPE], str(error)
                for name in plugin.config.keys:
                    full = with_full_name(text, name, prefix)
                    if full != text and prefix + name in found:
                        value, text = found[prefix + name], full
                        break
                value.errors = [*value.errors, text]
