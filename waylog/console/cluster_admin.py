"""An admin client of kafka-python, for requests that librdkafka's client does not offer."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kafka import KafkaAdminClient

from waylog.console.common import security
from waylog.kafka.properties import configured_properties

#: librdkafka's properties, which the commands take, and kafka-python's names for them.
_OPTIONS: Final = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}


def refusal(error: Exception) -> str:
    """Return what went wrong as a sentence, without the name of a class where possible."""
    texts = [str(each) for each in error.args if isinstance(each, str) and each]
    described = getattr(error, "description", None)
    return "; ".join(texts) or (str(described) if described else type(error).__name__)


@contextmanager
def cluster_admin(arguments: argparse.Namespace, **settings: Any) -> Iterator[KafkaAdminClient]:
    """Connect with the command's options and the environment's settings.

    Raises KafkaError, OSError and ValueError if that fails.
    """
    given = configured_properties() | security(arguments)
    options: dict[str, Any] = {_OPTIONS[name]: given[name] for name in given if name in _OPTIONS}
    if given.get("ssl.endpoint.identification.algorithm") == "none":
        options["ssl_check_hostname"] = False
    # Its log messages about connections are in the errors that it raises too.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    admin = KafkaAdminClient(
        bootstrap_servers=arguments.bootstrap_servers.split(","),
        client_id="waylog-console",
        **options,
        **settings,
    )
    try:
        yield admin
    finally:
        admin.close()
