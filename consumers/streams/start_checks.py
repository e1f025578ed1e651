"""What is looked at before a topology starts: topics that it writes, others with its name.

Two topologies with one name are in one consumer group, which shares the partitions out among all of
its members: each lacks records that the other one gets, and no offset tells it. Topologies out of
files tell theirs by the client id of their members.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from consumers.streams.processor import Topology
from waylog.kafka.clients import client_config
from waylog.kafka.errors import error_text

logger = logging.getLogger(__name__)

_ANSWER_S: Final = 5.0


class OutputMissing(Exception):
    """A topic that a topology writes does not exist; the message names it."""


def check_outputs(bootstrap_servers: str, topologies: Sequence[Topology]) -> None:
    """Raise OutputMissing for the first topic that is missing.

    A log that does not answer says nothing here: a worker waits for it.
    """
    admin = None
    for topology in topologies:
        for topic in topology.outputs():
            admin = admin or AdminClient(client_config(bootstrap_servers, "waylog-streams"))
            try:
                found = admin.list_topics(topic, timeout=_ANSWER_S).topics[topic]
            except KafkaException:
                continue
            if found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise OutputMissing(
                    f"topology {topology.name} writes topic {topic}, which does not exist: "
                    f"`waylog topics create {topic}` makes it"
                )


def client_id_of(application: str, origin: str | None) -> str:
    """Return the client id of a member; `origin` is what tells a file from others."""
    return application if origin is None else f"{application}-{origin}"


def warn_of_namesake(bootstrap_servers: str, application: str, client_id: str) -> bool:
    """Log a warning if a group has a member of another topology; return whether it has.

    Says nothing while the group cannot be asked.
    """
    admin = AdminClient(client_config(bootstrap_servers, client_id))
    try:
        answer = admin.describe_consumer_groups([application], request_timeout=_ANSWER_S)
        members = answer[application].result().members
    except KafkaException as error:
        logger.debug("group %s: %s", application, error_text(error))
        return False
    others = {each.client_id for each in members} - {client_id}
    if not others:
        return False
    logger.warning(
        "group %s has members of another topology, or of another version of this one: they share "
        "its partitions and states, and each lacks what the others get. Unless this is an update, "
        "stop one of them, and give it a name of its own (%s; this one is %s)",
        *(application, ", ".join(sorted(others)[:5]), client_id),
    )
    return True
