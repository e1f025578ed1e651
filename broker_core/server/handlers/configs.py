"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from broker_core import errors
from broker_core.server.handlers.administration import Administered, answer_each
from broker_core.server.handlers.config_entries import (
    ConfigSources,
    describe_all_brokers,
    describe_broker,
    describe_group,
    describe_topic,
)
from broker_core.server.network.request import Request
from broker_core.server.partitions.topics import Topic, TopicRegistry
from broker_core.server.settings.admin_operations import AdminOperations
from broker_core.server.settings.group_settings import GroupSettings
from broker_core.server.settings.topic_settings import (
    BY_BROKER_PROPERTY,
    TOPIC_SETTINGS,
    ConfigType,
)

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        AlterConfigsRequest,
        AlterConfigsResponse,
        AlterConfigsResponseResult,
        DescribeConfigsRequest,
        DescribeConfigsRequestResource,
        DescribeConfigsResponse,
        DescribeConfigsResponseConfig,
        DescribeConfigsResponseResult,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
    )

    _Request = (
        Request[AlterConfigsRequest, AlterConfigsResponse]
        | Request[IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse]
    )

logger = logging.getLogger(__name__)

# Types of resources (ConfigResource).
_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32

# Operations of IncrementalAlterConfigs.
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_RESOURCE_TYPES_FROM: Final = 1

#: Name, value and operation of one change.
_Change = tuple[str, str | None, int]


class ConfigParts(ConfigSources, Administered, Protocol):
    """The parts of a broker that know and change the settings of topics, groups and brokers."""

    topics: TopicRegistry
    group_settings: GroupSettings


class _Alteration(NamedTuple):
    """The changes to one resource; all its other settings go if they are not incremental."""

    resource_type: int
    name: str
    changes: list[_Change]
    is_incremental: bool


def handle_describe(
    broker: ConfigParts, request: Request[DescribeConfigsRequest, DescribeConfigsResponse]
) -> None:
    """Answer a DescribeConfigs request."""
    results: list[DescribeConfigsResponseResult] = []
    for asked in request.body["resources"]:
        result: DescribeConfigsResponseResult = {
            "error_message": None,
            "resource_type": asked["resource_type"],
            "resource_name": asked["resource_name"],
        }
        results.append(result)
        try:
            entries = _entries(broker, asked)
        except errors.BrokerError as error:
            result["error_code"] = error.code
            result["error_message"] = str(error)
            continue
        for entry in entries:
            if not request.body["include_synonyms"]:
                entry["synonyms"] = []
            if not request.body["include_documentation"]:
                entry["documentation"] = None
        keys = asked["configuration_keys"]
        result["configs"] = [entry for entry in entries if not keys or entry["name"] in keys]
    request.reply({"results": results})


def _entries(
    broker: ConfigParts, asked: DescribeConfigsRequestResource
) -> list[DescribeConfigsResponseConfig]:
    if asked["resource_type"] == _TOPIC:
        topic = _topic(broker.topics, asked["resource_name"])
        return describe_topic(broker, topic.config, topic.overrides)
    if asked["resource_type"] == _GROUP:
        return describe_group(broker.group_settings, asked["resource_name"])
    if _is_for_all(broker.config.node_id, asked):
        return describe_all_brokers(broker.dynamic_config)
    return describe_broker(broker)


def _topic(topics: TopicRegistry, name: str) -> Topic:
    topic = topics.get(name)
    if topic is None:
        raise errors.UnknownTopicOrPartition()
    return topic


def _is_for_all(node_id: int, asked: DescribeConfigsRequestResource) -> bool:
    """Tell whether a request is for all brokers, not this one; raises InvalidRequest if neither."""
    _check_broker_type(asked["resource_type"])
    name = asked["resource_name"]
    if name not in {"", str(node_id)}:
        raise errors.InvalidRequest(
            f"Unexpected broker id, expected {node_id} or empty string, but received {name}"
        )
    return not name


def handle_alter(
    broker: ConfigParts, request: Request[AlterConfigsRequest, AlterConfigsResponse]
) -> None:
    """Answer AlterConfigs, which replaces all settings of a resource."""
    _alter(
        broker,
        request,
        [
            _Alteration(
                each["resource_type"],
                each["resource_name"],
                [(setting["name"], setting["value"], _SET) for setting in each["configs"]],
                is_incremental=False,
            )
            for each in request.body["resources"]
        ],
    )


def handle_incremental_alter(
    broker: ConfigParts,
    request: Request[IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse],
) -> None:
    """Answer an IncrementalAlterConfigs request."""
    _alter(
        broker,
        request,
        [
            _Alteration(
                each["resource_type"],
                each["resource_name"],
                [
                    (setting["name"], setting["value"], setting["config_operation"])
                    for setting in each["configs"]
                ],
                is_incremental=True,
            )
            for each in request.body["resources"]
        ],
    )


def _alter(broker: ConfigParts, request: _Request, alterations: list[_Alteration]) -> None:
    results: list[AlterConfigsResponseResult] = []
    named = Counter((each.resource_type, each.name) for each in alterations)
    validate_only = request.body["validate_only"]

    def alter(authority: AdminOperations) -> None:
        for asked in alterations:
            result: AlterConfigsResponseResult = {
                "error_code": errors.NONE,
                "error_message": None,
                "resource_type": asked.resource_type,
                "resource_name": asked.name,
            }
            results.append(result)
            try:
                if named[asked.resource_type, asked.name] > 1:
                    raise errors.InvalidRequest("Each resource must appear at most once.")
                if asked.resource_type == _GROUP:
                    _alter_group(broker.group_settings, authority, asked, validate_only)
                    continue
                change = _alter_topic if asked.resource_type == _TOPIC else _alter_broker
                change(authority, asked, validate_only)
            except errors.BrokerError as error:
                result["error_code"] = error.code
                result["error_message"] = str(error)

    broker.cluster.administer(
        alter, answer_each(lambda: request.reply({"responses": results}), results)
    )


def _alter_topic(authority: AdminOperations, asked: _Alteration, validate_only: bool) -> None:
    name = asked.name
    overrides, config = authority.topic_settings(name)
    present = overrides if asked.is_incremental else {}
    changed = _changed(present, config.to_properties(), asked.changes)
    authority.change_topic(name, changed, validate_only=validate_only)


def _alter_group(
    settings: GroupSettings,
    authority: AdminOperations,
    asked: _Alteration,
    validate_only: bool,
) -> None:
    group_id = asked.name
    if not group_id:
        raise errors.InvalidRequest("A group needs an id.")
    present = authority.group_settings(group_id) if asked.is_incremental else {}
    properties = _changed(present, settings.effective(group_id), asked.changes)
    settings.check(properties)
    if not validate_only:
        authority.change_group(group_id, properties)
        logger.info("settings of group %s: %s", group_id, properties)


def _check_broker_type(resource_type: int) -> None:
    if resource_type != _BROKER:
        raise errors.InvalidRequest(f"resources of type {resource_type} have no settings here")


def _alter_broker(authority: AdminOperations, asked: _Alteration, validate_only: bool) -> None:
    _check_broker_type(asked.resource_type)
    name = asked.name
    for_all = not name
    dynamic = authority.dynamic_config(name)
    before = dynamic.of(name)
    effective = {
        name: value for name, value, _ in dynamic.effective().describe() if value is not None
    }
    present = before if asked.is_incremental else {}
    properties = _changed(present, effective, asked.changes)
    dynamic.check(properties, for_all=for_all)
    if validate_only:
        return
    authority.change_broker(name, properties)
    logger.info("settings of %s: %s", f"broker {name}" if name else "all brokers", properties)


def _is_list(name: str) -> bool:
    setting = TOPIC_SETTINGS.get(BY_BROKER_PROPERTY.get(name, name))
    return setting is not None and setting.type is ConfigType.LIST


def _changed(
    present: dict[str, str],
    effective: dict[str, str],
    changes: list[_Change],
) -> dict[str, str]:
    """Return the settings after the changes; raises InvalidConfig, InvalidRequest."""
    names = [name for name, _, _ in changes]
    if len(set(names)) < len(names):
        raise errors.InvalidRequest("Error due to duplicate config keys")
    properties = dict(present)
    for name, value, operation in changes:
        if operation == _DELETE:
            properties.pop(name, None)
        elif value is None:
            raise errors.InvalidRequest(f"Null value not supported for : {name}")
        elif operation == _SET:
            properties[name] = value
        elif operation in {_APPEND, _SUBTRACT} and _is_list(name):
            properties[name] = _edited_list(effective.get(name, ""), value, operation)
        else:
            raise errors.InvalidConfig(
                f"operation {operation} is not possible on {name}, which is no list"
            )
    return properties


def _edited_list(effective: str, value: str, operation: int) -> str:
    present = [each for each in effective.split(",") if each]
    given = value.split(",")
    if operation == _APPEND:
        present += [each for each in given if each not in present]
    else:
        present = [each for each in present if each not in given]
    return ",".join(present)


def handle_list_resources(
    broker: ConfigParts, request: Request[ListConfigResourcesRequest, ListConfigResourcesResponse]
) -> None:
    """Answer ListConfigResources; version 0 asks for client metrics, of which there are none."""
    if request.version < _RESOURCE_TYPES_FROM:
        request.reply({"error_code": errors.NONE, "config_resources": []})
        return
    supported = (_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)
    wanted = request.body["resource_types"] or supported
    if set(wanted) - set(supported):
        request.reply({"error_code": errors.UnsupportedVersion.code, "config_resources": []})
        return
    names = {
        _TOPIC: [topic.name for topic in broker.topics],
        _BROKER: [str(broker.config.node_id)],
        _BROKER_LOGGER: [str(broker.config.node_id)],
        _GROUP: broker.group_settings.groups(),
    }
    request.reply(
        {
            "error_code": errors.NONE,
            "config_resources": [
                {"resource_name": name, "resource_type": kind}
                for kind in dict.fromkeys(wanted)
                for name in names.get(kind, ())
            ],
        }
    )
