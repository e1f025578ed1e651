"""The properties that every connector has, by the names of Kafka Connect.

Source: Kafka's documentation, "Configuration", sections "Source Connector Configs" and "Sink
Connector Configs". Times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from consumers.connect.configuration.definitions import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    Width,
    parse_type,
)
from consumers.connect.configuration.validators import (
    all_of,
    at_least,
    between,
    non_empty,
    non_empty_without_control_characters,
    one_of,
    one_of_ignoring_case,
    optional,
    topic_name,
    topic_names,
    unique_aliases,
    valid_regex,
)
from consumers.connect.configuration.version_range import valid_range
from consumers.connect.java.regular_expression import JavaRegexError, compile_java

NAME: Final = "name"
CONNECTOR_CLASS: Final = "connector.class"
TASKS_MAX: Final = "tasks.max"
KEY_CONVERTER: Final = "key.converter"
VALUE_CONVERTER: Final = "value.converter"
HEADER_CONVERTER: Final = "header.converter"
TRANSFORMS: Final = "transforms"
PREDICATES: Final = "predicates"
CONNECTOR_VERSION: Final = "connector.plugin.version"
#: Behind the name of a property whose value is a class.
_VERSION: Final = ".plugin.version"
#: More threads and clients than any worker has.
_TASKS_MAX: Final = 10_000
CONFIG_ACTION_RELOAD: Final = "config.action.reload"
ERRORS_RETRY_TIMEOUT: Final = "errors.retry.timeout"
ERRORS_RETRY_DELAY_MAX_MS: Final = "errors.retry.delay.max.ms"
ERRORS_TOLERANCE: Final = "errors.tolerance"
ERRORS_LOG_ENABLE: Final = "errors.log.enable"
ERRORS_LOG_INCLUDE_MESSAGES: Final = "errors.log.include.messages"
TOPICS: Final = "topics"
TOPICS_REGEX: Final = "topics.regex"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_REPLICATION_FACTOR: Final = "errors.deadletterqueue.topic.replication.factor"
DEAD_LETTER_CONTEXT_HEADERS: Final = "errors.deadletterqueue.context.headers.enable"
TOPIC_CREATION_GROUPS: Final = "topic.creation.groups"
EXACTLY_ONCE_SUPPORT: Final = "exactly.once.support"
TRANSACTION_BOUNDARY: Final = "transaction.boundary"
TRANSACTION_BOUNDARY_INTERVAL_MS: Final = "transaction.boundary.interval.ms"
OFFSETS_TOPIC: Final = "offsets.storage.topic"

COMMON_GROUP: Final = "Common"
TRANSFORMS_GROUP: Final = "Transforms"
PREDICATES_GROUP: Final = "Predicates"
ERROR_GROUP: Final = "Error Handling"
TOPIC_CREATION_GROUP: Final = "Topic Creation"
EXACTLY_ONCE_GROUP: Final = "Exactly Once Support"
OFFSETS_TOPIC_GROUP: Final = "offsets.topic"


def _version_key(
    name: str,
    what: str,
    display_name: str,
    order: int,
    importance: Importance = Importance.LOW,
    width: Width = Width.SHORT,
) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=ConfigType.STRING,
        default=None,
        validator=valid_range,
        importance=importance,
        documentation=f"The versions of the {what} that are taken, such as [1.0,2.0).",
        group=COMMON_GROUP,
        order=order,
        width=width,
        display_name=display_name,
    )


_COMMON: Final = (
    ConfigKey(
        name=NAME,
        type=ConfigType.STRING,
        validator=non_empty_without_control_characters,
        importance=Importance.HIGH,
        documentation="The connector's name; no other connector of the cluster has it.",
        group=COMMON_GROUP,
        order=1,
        width=Width.MEDIUM,
        display_name="Connector name",
    ),
    ConfigKey(
        name=CONNECTOR_CLASS,
        type=ConfigType.STRING,
        importance=Importance.HIGH,
        documentation="The connector's class: its full name, or an alias such as FileStreamSink.",
        group=COMMON_GROUP,
        order=2,
        width=Width.LONG,
        display_name="Connector class",
    ),
    _version_key(
        *(CONNECTOR_VERSION, "connector", "Connector version", 3),
        *(Importance.MEDIUM, Width.MEDIUM),
    ),
    ConfigKey(
        name=TASKS_MAX,
        type=ConfigType.INT,
        default=1,
        # Some connectors make as many as they may, whatever there is to do.
        validator=between(1, _TASKS_MAX),
        importance=Importance.HIGH,
        documentation="The connector has at most this many tasks.",
        group=COMMON_GROUP,
        order=4,
        width=Width.SHORT,
        display_name="Tasks max",
    ),
    ConfigKey(
        name="tasks.max.enforce",
        type=ConfigType.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        documentation="Deprecated. Whether a connector that makes too many tasks fails.",
        group=COMMON_GROUP,
        order=5,
        width=Width.SHORT,
        display_name="Enforce tasks max",
    ),
    ConfigKey(
        name=KEY_CONVERTER,
        type=ConfigType.CLASS,
        default=None,
        importance=Importance.LOW,
        documentation="The converter between the bytes of keys and their values; the worker's if "
        "it is not set.",
        group=COMMON_GROUP,
        order=6,
        width=Width.SHORT,
        display_name="Key converter class",
    ),
    _version_key(KEY_CONVERTER + _VERSION, "converter of keys", "Key converter version", 7),
    ConfigKey(
        name=VALUE_CONVERTER,
        type=ConfigType.CLASS,
        default=None,
        importance=Importance.LOW,
        documentation="The converter between the bytes of records and their values; the worker's "
        "if it is not set.",
        group=COMMON_GROUP,
        order=8,
        width=Width.SHORT,
        display_name="Value converter class",
    ),
    _version_key(VALUE_CONVERTER + _VERSION, "converter of values", "Value converter version", 9),
    ConfigKey(
        name=HEADER_CONVERTER,
        type=ConfigType.CLASS,
        default=None,
        importance=Importance.LOW,
        documentation="The converter between the bytes of headers and their values; the worker's "
        "if it is not set.",
        group=COMMON_GROUP,
        order=10,
        width=Width.SHORT,
        display_name="Header converter class",
    ),
    _version_key(
        HEADER_CONVERTER + _VERSION, "converter of headers", "Header converter version", 11
    ),
    ConfigKey(
        name=TRANSFORMS,
        type=ConfigType.LIST,
        default=[],
        validator=unique_aliases,
        importance=Importance.LOW,
        documentation="Names of the transforms that each record goes through, in their order.",
        group=TRANSFORMS_GROUP,
        order=12,
        width=Width.LONG,
        display_name="Transforms",
    ),
    ConfigKey(
        name=PREDICATES,
        type=ConfigType.LIST,
        default=[],
        validator=unique_aliases,
        importance=Importance.LOW,
        documentation="Names of the predicates that transforms refer to.",
        group=PREDICATES_GROUP,
        order=13,
        width=Width.LONG,
        display_name="Predicates",
    ),
    ConfigKey(
        name=CONFIG_ACTION_RELOAD,
        type=ConfigType.STRING,
        default="restart",
        validator=one_of("none", "restart"),
        importance=Importance.LOW,
        documentation="What happens when the value of a variable of the configuration has "
        "changed: the connector restarts, or nothing.",
        group=COMMON_GROUP,
        order=14,
        width=Width.MEDIUM,
        display_name="Reload Action",
    ),
    ConfigKey(
        name=ERRORS_RETRY_TIMEOUT,
        type=ConfigType.LONG,
        default=0,
        importance=Importance.MEDIUM,
        documentation="For how many milliseconds a failed operation is repeated; 0 is not at all, "
        "-1 for ever.",
        group=ERROR_GROUP,
        order=1,
        width=Width.MEDIUM,
        display_name="Retry Timeout for Errors",
    ),
    ConfigKey(
        name=ERRORS_RETRY_DELAY_MAX_MS,
        type=ConfigType.LONG,
        default=60_000,
        importance=Importance.MEDIUM,
        documentation="The longest pause between two repetitions in milliseconds; once it is "
        "reached, pauses are drawn by lot up to it.",
        group=ERROR_GROUP,
        order=2,
        width=Width.MEDIUM,
        display_name="Maximum Delay Between Retries for Errors",
    ),
    ConfigKey(
        name=ERRORS_TOLERANCE,
        type=ConfigType.STRING,
        default="none",
        validator=one_of("none", "all"),
        importance=Importance.MEDIUM,
        documentation="none: the task fails by the first record that cannot be processed. all: "
        "such records are left out.",
        group=ERROR_GROUP,
        order=3,
        width=Width.SHORT,
        display_name="Error Tolerance",
    ),
    ConfigKey(
        name=ERRORS_LOG_ENABLE,
        type=ConfigType.BOOLEAN,
        default=False,
        importance=Importance.MEDIUM,
        documentation="Whether failed operations are logged, also those that are tolerated.",
        group=ERROR_GROUP,
        order=4,
        width=Width.SHORT,
        display_name="Log Errors",
    ),
    ConfigKey(
        name=ERRORS_LOG_INCLUDE_MESSAGES,
        type=ConfigType.BOOLEAN,
        default=False,
        importance=Importance.MEDIUM,
        documentation="Whether the log names the record: topic, partition, offset and timestamp "
        "of one that was consumed, all of one that a source connector made.",
        group=ERROR_GROUP,
        order=5,
        width=Width.SHORT,
        display_name="Log Error Details",
    ),
)

_SINK: Final = (
    ConfigKey(
        name=TOPICS,
        type=ConfigType.LIST,
        default=[],
        validator=topic_names,
        importance=Importance.HIGH,
        documentation="The topics to consume, separated by commas.",
        group=COMMON_GROUP,
        order=4,
        width=Width.LONG,
        display_name="Topics",
    ),
    ConfigKey(
        name=TOPICS_REGEX,
        type=ConfigType.STRING,
        default="",
        validator=valid_regex,
        importance=Importance.HIGH,
        documentation="A regular expression of Java's for the topics to consume, instead of "
        "`topics`.",
        group=COMMON_GROUP,
        order=4,
        width=Width.LONG,
        display_name="Topics regex",
    ),
    ConfigKey(
        name=DEAD_LETTER_TOPIC,
        type=ConfigType.STRING,
        default="",
        validator=topic_name,
        importance=Importance.MEDIUM,
        documentation="The topic that gets the records which converters, transforms or the "
        "connector could not process; empty for none.",
        group=ERROR_GROUP,
        order=6,
        width=Width.MEDIUM,
        display_name="Dead Letter Queue Topic Name",
    ),
    ConfigKey(
        name=DEAD_LETTER_REPLICATION_FACTOR,
        type=ConfigType.SHORT,
        default=3,
        importance=Importance.MEDIUM,
        documentation="Replicas of the dead letter topic when it has to be created.",
        group=ERROR_GROUP,
        order=7,
        width=Width.MEDIUM,
        display_name="Dead Letter Queue Topic Replication Factor",
    ),
    ConfigKey(
        name=DEAD_LETTER_CONTEXT_HEADERS,
        type=ConfigType.BOOLEAN,
        default=False,
        importance=Importance.MEDIUM,
        documentation="Whether dead letters say in headers `__connect.errors.*` where they come "
        "from and what went wrong.",
        group=ERROR_GROUP,
        order=8,
        width=Width.MEDIUM,
        display_name="Enable Error Context Headers",
    ),
)

_SOURCE: Final = (
    ConfigKey(
        name=TOPIC_CREATION_GROUPS,
        type=ConfigType.LIST,
        default=[],
        validator=unique_aliases,
        importance=Importance.LOW,
        documentation="Names of groups of settings for the topics that the connector creates.",
        group=TOPIC_CREATION_GROUP,
        order=1,
        width=Width.LONG,
        display_name="Topic Creation Groups",
    ),
    ConfigKey(
        name=EXACTLY_ONCE_SUPPORT,
        type=ConfigType.STRING,
        default="requested",
        validator=one_of_ignoring_case("requested", "required"),
        importance=Importance.MEDIUM,
        documentation="required: the connector is refused unless it says that it writes each "
        "record exactly once with this configuration. requested: it is not asked.",
        group=EXACTLY_ONCE_GROUP,
        order=2,
        width=Width.SHORT,
        display_name="Exactly once support",
    ),
    ConfigKey(
        name=TRANSACTION_BOUNDARY,
        type=ConfigType.STRING,
        default="poll",
        validator=one_of_ignoring_case("poll", "connector", "interval"),
        importance=Importance.MEDIUM,
        documentation="When a transaction ends: with each batch of the connector (poll), where "
        "the connector says so (connector), or after a time (interval).",
        group=EXACTLY_ONCE_GROUP,
        order=3,
        width=Width.SHORT,
        display_name="Transaction Boundary",
    ),
    ConfigKey(
        name=TRANSACTION_BOUNDARY_INTERVAL_MS,
        type=ConfigType.LONG,
        default=None,
        validator=optional(at_least(0)),
        importance=Importance.LOW,
        documentation="Milliseconds of a transaction, if `transaction.boundary` is interval; the "
        "worker's `offset.flush.interval.ms` if it is not set.",
        group=EXACTLY_ONCE_GROUP,
        order=4,
        width=Width.SHORT,
        display_name="Transaction boundary interval",
    ),
    ConfigKey(
        name=OFFSETS_TOPIC,
        type=ConfigType.STRING,
        default=None,
        validator=all_of(non_empty, topic_name),
        importance=Importance.LOW,
        documentation="A topic of its own for the connector's offsets; the worker's if it is not "
        "set.",
        group=OFFSETS_TOPIC_GROUP,
        order=1,
        width=Width.LONG,
        display_name="Offsets topic",
    ),
)

COMMON_CONFIG: Final = ConfigDef(_COMMON)
SINK_CONFIG: Final = COMMON_CONFIG.with_keys(_SINK)
SOURCE_CONFIG: Final = COMMON_CONFIG.with_keys(_SOURCE)


def topics_of(properties: Mapping[str, str]) -> list[str]:
    """Return the topics that a sink connector names in `topics`, each once."""
    topics = parse_type(TOPICS, properties.get(TOPICS), ConfigType.LIST) or []
    return list(dict.fromkeys(topic for topic in topics if topic))


def validate_topics(properties: Mapping[str, str | None], found: dict[str, ConfigValue]) -> None:
    """Add to `found` what is wrong with a sink connector's topics: it names them by a list or by an
    expression, and its dead letter topic is none of them.
    """
    names = properties.get(TOPICS)
    expression = properties.get(TOPICS_REGEX)
    dead_letters = (properties.get(DEAD_LETTER_TOPIC) or "").strip()
    has_names = bool(names and names.strip())
    has_expression = bool(expression and expression.strip())

    def refuse(name: str, error: str) -> None:
        value = found.setdefault(name, ConfigValue(name=name, value=properties.get(name)))
        value.errors = [*value.errors, error]

    if has_names and has_expression:
        error = f"{TOPICS} and {TOPICS_REGEX} are mutually exclusive options, but both are set."
        refuse(TOPICS, error)
        refuse(TOPICS_REGEX, error)
    if not has_names and not has_expression:
        error = f"Must configure one of {TOPICS} or {TOPICS_REGEX}"
        refuse(TOPICS, error)
        refuse(TOPICS_REGEX, error)
    if dead_letters and names and has_names:
        topics = topics_of({TOPICS: names})
        if dead_letters in topics:
            refuse(
                TOPICS,
                f"The DLQ topic '{dead_letters}' may not be included in the list of topics "
                f"('{TOPICS}=[{', '.join(topics)}]') consumed by the connector",
            )
    if dead_letters and expression and has_expression:
        try:
            pattern = compile_java(expression)
        except JavaRegexError:
            return  # the property's own validator says so
        if pattern.fullmatch(dead_letters):
            refuse(
                TOPICS_REGEX,
                f"The DLQ topic '{dead_letters}' may not be matched by the regex for the topics "
                f"('{TOPICS_REGEX}={expression}') consumed by the connector",
            )
