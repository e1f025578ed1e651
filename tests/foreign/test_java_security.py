"""Kafka's administration tools: ACLs, users, quotas and settings, as scripts use them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apache_kafka import tool
from tests.contract.broker_process import BrokerProcess
from tests.ports import reserved_ports

pytestmark = [pytest.mark.kafka]

_ACLS = "org.apache.kafka.tools.AclCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
_TOPICS = "org.apache.kafka.tools.TopicCommand"


LOGIN = f"127.0.0.1:{reserved_ports(1)[0]}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Run a broker on which clients without a name are administrators, and others log in."""
    broker = BrokerProcess(
        tmp_path_factory.mktemp("secured"),
        **{
            "listeners": f"PLAINTEXT://127.0.0.1:0,LOGIN://{LOGIN}",
            "listener_security_protocol_map": "LOGIN:SASL_PLAINTEXT",
            "sasl_enabled_mechanisms": "SCRAM-SHA-512",
            "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super_users": "User:ANONYMOUS",
        },
    )
    broker.start()
    yield broker
    assert broker.stop() == 0, "".join(broker.output)


def run(broker: BrokerProcess, name: str, *arguments: str) -> str:
    """Run a tool, which must succeed; return its output."""
    done = tool(name, "--bootstrap-server", broker.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafka_acls_adds_lists_and_removes(secured: BrokerProcess) -> None:
    rule = ("--allow-principal", "User:anna", "--operation", "Read", "--topic", "trips")
    run(secured, _ACLS, "--add", *rule)
    run(
        secured, _ACLS, "--add", "--producer", "--allow-principal", "User:bert",
        "--topic", "tr", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    listed = run(secured, _ACLS, "--list")
    assert "name=trips, patternType=LITERAL" in listed
    assert "principal=User:anna, host=*, operation=READ, permissionType=ALLOW" in listed
    assert "name=tr, patternType=PREFIXED" in listed
    run(secured, _ACLS, "--remove", "--force", *rule)
    assert "User:anna" not in run(secured, _ACLS, "--list")


def test_kafka_configs_makes_users_and_quotas(secured: BrokerProcess) -> None:
    user = ("--entity-type", "users", "--entity-name", "carl")
    scram = "SCRAM-SHA-512=[iterations=8192,password=secret]"
    run(secured, _CONFIGS, "--alter", *user, "--add-config", scram)
    run(secured, _CONFIGS, "--alter", *user, "--add-config", "producer_byte_rate=1048576")
    described = run(secured, _CONFIGS, "--describe", *user)
    assert "SCRAM-SHA-512=iterations=8192" in described
    assert "producer_byte_rate=1048576" in described
    for name in ("SCRAM-SHA-512", "producer_byte_rate"):
        run(secured, _CONFIGS, "--alter", *user, "--delete-config", name)
    left = run(secured, _CONFIGS, "--describe", *user)
    assert "SCRAM-SHA-512" not in left
    assert "producer_byte_rate" not in left


def test_kafka_configs_changes_brokers_and_topics(secured: BrokerProcess) -> None:
    run(secured, _TOPICS, "--create", "--topic", "tours", "--partitions", "1")
    everybody = ("--entity-type", "brokers", "--entity-default")
    run(secured, _CONFIGS, "--alter", *everybody, "--add-config", "log.segment.bytes=2000000")
    assert "log.segment.bytes=2000000" in run(secured, _CONFIGS, "--describe", *everybody)
    topic = ("--entity-type", "topics", "--entity-name", "tours")
    run(secured, _CONFIGS, "--alter", *topic, "--add-config", "cleanup.policy=[compact,delete]")
    described = run(secured, _CONFIGS, "--describe", "--all", *topic)
    assert "cleanup.policy=compact,delete" in described
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.segment.bytes=2000000" in described
    run(secured, _CONFIGS, "--alter", *everybody, "--delete-config", "log.segment.bytes")
    broker = ("--entity-type", "brokers", "--entity-name", "0")
    refused = tool(
        _CONFIGS, "--bootstrap-server", secured.bootstrap_servers,
        "--alter", *broker, "--add-config", "node.id=9",
    )  # fmt: skip
    assert refused.returncode != 0
    assert "Cannot update these configs dynamically" in refused.stdout + refused.stderr


def test_a_java_client_logs_in_with_scram(secured: BrokerProcess, tmp_path: Path) -> None:
    user = ("--entity-type", "users", "--entity-name", "dora")
    run(secured, _CONFIGS, "--alter", *user, "--add-config", "SCRAM-SHA-512=[password=pw]")
    run(secured, _ACLS, "--add", "--allow-principal", "User:dora", "--operation", "All",
        "--topic", "*", "--cluster")  # fmt: skip
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="dora" password="pw";\n'
    )
    run(secured, _TOPICS, "--create", "--topic", "dora", "--partitions", "1")
    done = tool(
        "org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", LOGIN,
        "--topic", "dora", "--max-messages", "100", "--command-config", str(config),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"acked":100' in done.stdout.replace(" ", "")
