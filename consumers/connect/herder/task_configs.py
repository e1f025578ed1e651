"""The properties of a connector's tasks: what the connector says, and what the worker adds."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from consumers.connect.configuration.connector_properties import (
    COMMON_CONFIG,
    TASKS_MAX,
    TOPICS,
    TOPICS_REGEX,
)
from consumers.connect.configuration.variables import has_variable
from consumers.connect.data.exceptions import ConnectException

logger = logging.getLogger(__name__)

TASK_CLASS: Final = "task.class"


class TooManyTasks(ConnectException):
    """A connector has made more tasks than `tasks.max`."""

    kafka_name = "org.apache.kafka.connect.runtime.TooManyTasksException"


def tasks_max(properties: Mapping[str, str]) -> int:
    """Return how many tasks a connector may make; raises ConfigException."""
    number: int = COMMON_CONFIG.parse(properties)[TASKS_MAX]
    return number


def complete_tasks(
    connector: str,
    properties: Mapping[str, str],
    task_class: str,
    tasks: Sequence[Mapping[str, str]],
) -> list[dict[str, str]]:
    """Return the tasks' properties with their class and the topics of a sink connector.

    `properties` are the connector's, with variables replaced. Raises TooManyTasks.
    """
    parsed = COMMON_CONFIG.parse(properties)
    limit = parsed[TASKS_MAX]
    if len(tasks) > limit:
        if parsed["tasks.max.enforce"]:
            raise TooManyTasks(
                f"The connector {connector} has generated {len(tasks)} tasks, which is greater "
                f"than {limit}, the maximum number of tasks it is configured to create. "
            )
        logger.warning("connector %s has made %d tasks, and tasks.max is %d", connector,
                       len(tasks), limit)  # fmt: skip
    added = {
        TASK_CLASS: task_class,
        **{name: properties[name] for name in (TOPICS, TOPICS_REGEX) if name in properties},
    }
    return [{**each, **added} for each in tasks]


def with_variables(
    raw: Mapping[str, str], tasks: Sequence[Mapping[str, str]]
) -> list[dict[str, str]]:
    """Return tasks with variables where the connector's configuration has them.

    So neither answers nor stores have what the variables stand for. `raw` is the connector's
    configuration as it was sent.
    """
    variables = {name: text for name, text in raw.items() if has_variable(text)}
    return [{name: variables.get(name, text) for name, text in each.items()} for each in tasks]
