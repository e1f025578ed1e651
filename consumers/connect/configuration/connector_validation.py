"""Everything that is wrong with a connector's configuration, as the REST interface answers it.

`PUT /connector-plugins/{class}/config/validate` of Kafka Connect (documentation, "REST API"). The
same check precedes the creation of a connector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from consumers.connect.configuration.connector_properties import (
    CONNECTOR_VERSION,
    EXACTLY_ONCE_SUPPORT,
    PREDICATES,
    SINK_CONFIG,
    SOURCE_CONFIG,
    TOPIC_CREATION_GROUPS,
    TRANSACTION_BOUNDARY,
    TRANSFORMS,
    validate_topics,
)
from consumers.connect.configuration.definitions import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConfigValue,
    value_text,
)
from consumers.connect.configuration.exceptions import ConfigException, with_full_name
from consumers.connect.configuration.password import HIDDEN
from consumers.connect.configuration.plugin_properties import (
    CONVERTER_KINDS,
    PLUGIN_VERSION,
    aliases_of_list,
    plugin_keys,
    validate_plugins,
    validate_versions,
    with_known_converters,
    with_prefix,
)
from consumers.connect.configuration.plugins import (
    ConnectorPlugin,
    ConnectorType,
    ExactlyOnceSupport,
    Plugins,
)
from consumers.connect.configuration.topic_creation import topic_creation_keys
from consumers.connect.configuration.variables import (
    HIDDEN_PART,
    NO_VARIABLES,
    Resolved,
    Variables,
)
from consumers.connect.configuration.version_range import check_version

#: Where properties have names that a list gives, by the list.
_NAMED_BY_LISTS: Final = {
    TRANSFORMS: "transforms.",
    PREDICATES: "predicates.",
    TOPIC_CREATION_GROUPS: "topic.creation.",
}


class KeyInfo(msgspec.Struct, kw_only=True):
    """The definition of a property in an answer."""

    name: str
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str
    group: str | None
    order_in_group: int
    width: str
    display_name: str
    dependents: list[str]


class ValueInfo(msgspec.Struct, kw_only=True):
    """The value of a property in an answer, and what is wrong with it."""

    name: str
    value: str | None
    recommended_values: list[str]
    errors: list[str]
    visible: bool


class ConfigInfo(msgspec.Struct):
    """A property in an answer; without a definition if only its error is known."""

    definition: KeyInfo | None
    value: ValueInfo


class ConfigInfos(msgspec.Struct):
    """The whole answer; `msgspec.json.encode` writes it."""

    name: str  # the connector's class
    error_count: int
    groups: list[str]
    configs: list[ConfigInfo]

    def errors(self) -> list[tuple[str, str]]:
        """Return property and message of all errors."""
        return [(each.value.name, text) for each in self.configs for text in each.value.errors]


def key_info(key: ConfigKey) -> KeyInfo:
    """Return the definition of a property as answers have it.

    `GET /connector-plugins/{class}/config` answers a list of these.
    """
    hidden = key.type is ConfigType.PASSWORD and key.default is not None and not key.required
    default = None if key.required else value_text(key.default)
    return KeyInfo(
        name=key.name,
        type=key.type.value,
        required=key.required,
        default_value=HIDDEN if hidden else default,
        importance=key.importance.value,
        documentation=key.documentation,
        group=key.group,
        width=key.width.value,
        display_name=key.display_name or key.name,
        dependents=list(key.dependents),
        order_in_group=key.order,
    )


def validate_connector(
    properties: Mapping[str, str | None],
    connector: ConnectorPlugin,
    plugins: Plugins,
    variables: Variables = NO_VARIABLES,
    *,
    exactly_once_enabled: bool = False,
    converters: Mapping[str, str] | None = None,
) -> ConfigInfos:
    """Return the answer for a configuration as it was sent, with variables not replaced.

    `converters` are the worker's, for connectors that name none, by `key.converter` and so on.
    Variables are replaced to find errors; neither values nor messages of the answer show what they
    stand for. Raises ConfigException if a provider fails.
    """
    resolved = variables.resolve(properties)
    present = {name: text for name, text in resolved.properties.items() if text is not None}
    base = SOURCE_CONFIG if connector.type is ConnectorType.SOURCE else SINK_CONFIG
    own = plugin_keys(present, plugins)
    if connector.type is ConnectorType.SOURCE:
        own = [*own, *topic_creation_keys(present)]
    config = with_known_converters(base, plugins).with_keys(own)
    config = config.with_defaults(_defaults(connector, plugins, converters or {}))
    found = config.validate(present)
    validate_plugins(present, plugins, found)
    validate_versions(present, plugins, found)
    _check_connector_version(present, connector, found)
    if connector.type is ConnectorType.SINK:
        validate_topics(present, found)
    else:
        _check_exactly_once(present, connector, found, exactly_once_enabled)
        _check_boundary(present, connector, found)
    # The connector's own definition comes first where both have a property.
    validate = connector.validate or connector.config.validate
    found |= validate(present)
    for name, text in properties.items():
        if text is None:
            value = found.setdefault(name, ConfigValue(name=name))
            error = "Null value can not be supplied as the configuration value."
            value.errors = [*value.errors, error]
    keys = config.keys | connector.config.keys
    for prefix, definition in _converters(present, found, plugins):
        keys |= {key.name: key for key in definition.embedded(prefix, "", 0)}
        for each in definition.validate(with_prefix(present, prefix)).values():
            each.errors = [with_full_name(error, each.name, prefix) for error in each.errors]
            each.name = prefix + each.name
            found[each.name] = each
    groups = dict.fromkeys([*config.groups, *connector.config.groups])
    answer = _answer(connector.name, keys, found.values(), list(groups), properties, resolved)
    _hide_aliases(answer, properties, resolved)
    return answer


def _defaults(
    connector: ConnectorPlugin, plugins: Plugins, converters: Mapping[str, str]
) -> dict[str, str]:
    """Return defaults that depend on the connector and on its worker."""
    defaults = {CONNECTOR_VERSION: connector.version}
    for name, kind in CONVERTER_KINDS.items():
        plugin = plugins.find(kind, converters.get(name, "").strip())
        if plugin is not None:
            defaults[name] = plugin.name
            defaults[f"{name}.{PLUGIN_VERSION}"] = plugins.version
    return defaults


def _converters(
    properties: Mapping[str, str], found: Mapping[str, ConfigValue], plugins: Plugins
) -> Iterable[tuple[str, ConfigDef]]:
    """Yield prefix and definition of the converters that the connector brings itself."""
    for name, kind in CONVERTER_KINDS.items():
        named = properties.get(name)
        if named is None or found[name].errors:
            continue
        plugin = plugins.find(kind, named.strip())
        if plugin is not None:
            yield f"{name}.", plugin.config


def _check_exactly_once(
    properties: Mapping[str, str],
    connector: ConnectorPlugin,
    found: dict[str, ConfigValue],
    enabled: bool,
) -> None:
    value = found[EXACTLY_ONCE_SUPPORT]
    if value.errors or str(value.value).lower() != "required":
        return
    if not enabled:
        error = "This worker does not have exactly-once source support enabled."
        value.errors = [*value.errors, error]
        return
    ask = connector.exactly_once_support
    support = ask(properties) if ask is not None else ExactlyOnceSupport.UNKNOWN
    if support is ExactlyOnceSupport.UNSUPPORTED:
        error = "The connector does not support exactly-once semantics with the provided "
        value.errors = [*value.errors, error + "configuration."]
    elif support is ExactlyOnceSupport.UNKNOWN:
        error = (
            "The connector does not implement the API required for preflight validation of "
            'exactly-once source support; set this to "requested" if it is known to support it.'
        )
        value.errors = [*value.errors, error]


def _check_connector_version(
    properties: Mapping[str, str], connector: ConnectorPlugin, found: dict[str, ConfigValue]
) -> None:
    value = found[CONNECTOR_VERSION]
    wanted = properties.get(CONNECTOR_VERSION)
    try:
        check_version(CONNECTOR_VERSION, wanted, connector.name, connector.version)
    except ConfigException as error:
        value.errors = [*value.errors, str(error)]


def _check_boundary(
    properties: Mapping[str, str], connector: ConnectorPlugin, found: dict[str, ConfigValue]
) -> None:
    value = found[TRANSACTION_BOUNDARY]
    if value.errors or str(value.value).lower() != "connector":
        return
    ask = connector.defines_boundaries
    if ask is None or not ask(properties):
        error = (
            "The connector does not support connector-defined transaction boundaries with the "
            "given configuration. Please reconfigure it to use a different transaction boundary "
            "definition."
        )
        value.errors = [*value.errors, error]


def _answer(
    name: str,
    keys: Mapping[str, ConfigKey],
    values: Iterable[ConfigValue],
    groups: list[str],
    raw: Mapping[str, str | None],
    resolved: Resolved,
) -> ConfigInfos:
    by_name = {value.name: value for value in values}
    configs = [
        ConfigInfo(None, _value_info(value, None, raw, resolved))
        for value in by_name.values()
        if value.name not in keys
    ]
    for each, key in keys.items():
        value = by_name.get(each)
        if value is not None:
            configs.append(ConfigInfo(key_info(key), _value_info(value, key, raw, resolved)))
    return ConfigInfos(name, sum(len(each.value.errors) for each in configs), groups, configs)


def _hide_aliases(answer: ConfigInfos, raw: Mapping[str, str | None], resolved: Resolved) -> None:
    """Hide names of transforms, predicates and groups that variables stand for.

    They are parts of the names of properties; one that the configuration itself has is no secret.
    """
    for listing, prefix in _NAMED_BY_LISTS.items():
        if listing not in resolved.secrets:
            continue
        for alias in aliases_of_list(listing, resolved.properties):
            own = f"{prefix}{alias}."
            if any(name.startswith(own) for name in raw):
                continue
            answer.groups = [_without_alias(each, alias) for each in answer.groups]
            for each in answer.configs:
                if not each.value.name.startswith(own):
                    continue
                hidden = f"{prefix}{HIDDEN_PART}."
                each.value.name = hidden + each.value.name.removeprefix(own)
                if each.definition is not None:
                    _hide_in(each.definition, alias, own, hidden)


def _hide_in(key: KeyInfo, alias: str, own: str, hidden: str) -> None:
    key.name = hidden + key.name.removeprefix(own)
    key.dependents = [hidden + each.removeprefix(own) for each in key.dependents]
    key.documentation = key.documentation.replace(f"'{alias}'", f"'{HIDDEN_PART}'")
    key.display_name = _without_alias(key.display_name, alias)
    key.group = None if key.group is None else _without_alias(key.group, alias)


def _without_alias(title: str, alias: str) -> str:
    """Return a title that names an alias in the end, or before the title of a part of it."""
    if title.endswith((f": {alias}", f" for {alias}", f" in {alias}")):
        return title.removesuffix(alias) + HIDDEN_PART
    return title.replace(f": {alias}: ", f": {HIDDEN_PART}: ")


def _value_info(
    value: ConfigValue, key: ConfigKey | None, raw: Mapping[str, str | None], resolved: Resolved
) -> ValueInfo:
    written = raw.get(value.name)
    secret = key is not None and key.type is ConfigType.PASSWORD
    if value.name in resolved.secrets:
        shown = written
    elif secret and value.value is not None:
        shown = HIDDEN
    else:
        shown = value_text(value.value)
    return ValueInfo(
        name=value.name,
        value=shown,
        recommended_values=[value_text(each) or "" for each in value.recommended_values],
        errors=[resolved.without_secrets(error, value.name, written) for error in value.errors],
        visible=value.visible,
    )
