"""Authorization in a cluster with TLS or SASL, in which clients may ask any broker."""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from broker_core import errors
from broker_core.protocol.definitions import BROKER_HEARTBEAT, CREATE_TOPICS
from broker_core.security.tls import client_context
from broker_core.server.network.peer import Peer
from tests.broker_core.server.cluster.conftest import StartTrio, Trio
from tests.broker_core.server.raw_client import RawClient
from tests.certificates import Certificates
from waylog.config import save_properties
from waylog.kafka.connection.sasl import SaslCredentials

BROKER = "User:broker"
ADMIN = "User:admin"
CLIENT = "User:client"


@pytest.fixture
async def trio(start_trio: StartTrio, certificates: Certificates) -> Trio:
    return await start_trio(
        listener_security_protocol_map="PLAINTEXT:SSL,CONTROLLER:SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(certificates.broker),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(certificates.authority),
        ssl_client_auth="required",
        ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/",
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users=f"{BROKER};{ADMIN}",
    )


def admin_client(trio: Trio, certificates: Certificates, node: int, name: str) -> AdminClient:
    path = certificates.make(common_name=name)
    return AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{trio.ports[node]}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificates.authority),
            "ssl.certificate.location": str(path),
            "ssl.key.location": str(path),
        }
    )


def result(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(60)


async def test_the_controller_asks_whether_the_client_may_not_the_broker_that_passes_it_on(
    trio: Trio, certificates: Certificates
) -> None:
    rule = AclBinding(
        ResourceType.TOPIC,
        "mine-",
        ResourcePatternType.PREFIXED,
        CLIENT,
        "127.0.0.1",
        AclOperation.CREATE,
        AclPermissionType.ALLOW,
    )
    for node in (1, 2, 3):
        client = admin_client(trio, certificates, node, "client")
        with pytest.raises(KafkaException) as refused:
            await asyncio.to_thread(result, client.create_topics([NewTopic(f"mine-{node}", 1, 3)]))
        assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    passed_on = next(node for node in (1, 2, 3) if node != trio.active)
    admin = admin_client(trio, certificates, passed_on, "admin")
    await asyncio.to_thread(result, admin.create_acls([rule]))
    for node in (1, 2, 3):
        client = admin_client(trio, certificates, node, "client")
        await asyncio.to_thread(result, client.create_topics([NewTopic(f"mine-{node}", 1, 3)]))
    with pytest.raises(KafkaException):
        await asyncio.to_thread(result, client.create_topics([NewTopic("yours", 1, 3)]))
    # Those of librdkafka go to the controller at once, this one does not.
    context = ssl.create_default_context(cafile=certificates.authority)
    context.load_cert_chain(certificates.make(common_name="client"))
    port = trio.ports[passed_on]
    raw = RawClient(*await asyncio.open_connection("127.0.0.1", port, ssl=context))
    topic = {
        "name": "mine-too",
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    body = {"topics": [topic], "timeout_ms": 60_000, "validate_only": False}
    answer = await raw.call(CREATE_TOPICS, 5, body)
    assert answer["topics"][0]["error_code"] == errors.NONE
    await raw.close()


async def test_thousands_of_requests_keep_those_of_another_user_waiting_for_a_few_only(
    trio: Trio, certificates: Certificates
) -> None:
    asked = next(node for node in trio.brokers if node != trio.active)

    async def client_of(name: str) -> RawClient:
        context = ssl.create_default_context(cafile=certificates.authority)
        context.load_cert_chain(certificates.make(common_name=name))
        port = trio.ports[asked]
        return RawClient(*await asyncio.open_connection("127.0.0.1", port, ssl=context))

    topic = {
        "name": "no name",
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    body = {"topics": [topic], "timeout_ms": 1_000, "validate_only": False}
    requests = 400
    answers = dict.fromkeys(range(5), 0)

    async def receive_all(number: int, client: RawClient) -> None:
        for _ in range(requests):
            await client.receive(CREATE_TOPICS, 5)
            answers[number] += 1

    greedy = [await client_of("client") for _ in answers]
    other = await client_of("admin")
    async with asyncio.TaskGroup() as tasks:
        for number, client in enumerate(greedy):
            for _ in range(requests):
                client.send(CREATE_TOPICS, 5, body)
            tasks.create_task(receive_all(number, client))
        # The broker reads faster than the controller answers.
        while not all(answers.values()):
            await asyncio.sleep(0)
        before = sum(answers.values())
        answer = await other.call(CREATE_TOPICS, 5, body)
        assert sum(answers.values()) - before < 200
        assert answer["topics"][0]["error_code"] == errors.InvalidTopic.code
    for client in (*greedy, other):
        await client.close()


async def test_users_are_known_to_all_brokers_and_after_a_restart(
    trio: Trio, certificates: Certificates
) -> None:
    admin = admin_client(trio, certificates, 1, "admin")
    wanted = UserScramCredentialUpsertion(
        "ann", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret", b"salt"
    )
    await asyncio.to_thread(result, admin.alter_user_scram_credentials([wanted]))
    await trio.until(lambda broker: list(broker.scram_users) == ["ann"])
    await trio.stop(3)
    await trio.start(3)
    assert list(trio.brokers[3].scram_users) == ["ann"]


async def test_a_cluster_begins_with_the_users_that_were_stored_for_it(tmp_path: Path) -> None:
    trio = Trio(tmp_path)
    await add_scram_user(trio, tmp_path, "admin", "secret")
    await trio.start()
    for broker in trio.brokers.values():
        assert list(broker.scram_users) == ["admin"]
    await trio.stop(1, 2, 3)


async def test_who_is_not_a_broker_is_no_controller_either(
    trio: Trio, certificates: Certificates
) -> None:
    """The controllers' listener answers only principals with the right CLUSTER_ACTION."""

    def peer(name: str) -> Peer:
        path = certificates.make("127.0.0.1", common_name=name)
        endpoint = dict(trio.brokers[1].config.voters)[trio.active]
        properties = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(path),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.authority),
        }
        return Peer(endpoint, name, tls=client_context(properties))

    beat: Any = {"broker_id": 9, "broker_epoch": 1, "current_metadata_offset": 0}
    stranger, admin = peer("client"), peer("admin")
    assert await stranger.call(BROKER_HEARTBEAT, 1, beat) is None
    answer = await admin.call(BROKER_HEARTBEAT, 1, beat)
    assert answer is not None and answer["error_code"] != 0
    stranger.close()
    admin.close()


def jaas(login: str, *users: str) -> str:
    words = [f'user_{user}="{user} secret"' for user in users]
    return (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{login}" password="{login} secret" {" ".join(words)};'
    )


def sasl_properties(mechanism: str) -> dict[str, str]:
    return {
        "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": f"PLAIN,{mechanism}" if mechanism != "PLAIN" else mechanism,
        "sasl_mechanism_inter_broker_protocol": mechanism,
        "sasl_mechanism_controller_protocol": "PLAIN",
        "plain_sasl_jaas_config": jaas("broker", "broker", "admin", "client"),
        f"{mechanism.lower()}_sasl_jaas_config": jaas("broker", "broker", "admin", "client"),
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": f"{BROKER};{ADMIN}",
    }


async def add_scram_user(trio: Trio, folder: Path, name: str, password: str) -> None:
    for node in trio.ports:
        config = folder / f"{node}.properties"
        save_properties(config, trio.properties(node))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "waylog.cli", "broker", "--config", str(config)),
            *("--add-scram", f"SCRAM-SHA-512={name}"),
            stdin=asyncio.subprocess.PIPE,
        )
        await process.communicate(f"{password}\n".encode())
        assert process.returncode == 0


@pytest.mark.parametrize(
    "mechanism", ["PLAIN", pytest.param("SCRAM-SHA-512", marks=pytest.mark.long)]
)
async def test_brokers_and_controllers_log_in_to_each_other(tmp_path: Path, mechanism: str) -> None:
    trio = Trio(tmp_path, **sasl_properties(mechanism), connections_max_reauth_ms="1000")
    if mechanism != "PLAIN":
        await add_scram_user(trio, tmp_path, "broker", "broker secret")
    await trio.start()
    try:
        servers = ",".join(f"127.0.0.1:{port}" for port in trio.ports.values())
        settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "admin secret",
        }
        admin = AdminClient(settings)
        await asyncio.to_thread(result, admin.create_topics([NewTopic("t", 3, 3)]))
        producer = Producer(settings | {"acks": "all", "log_level": 0})
        began = time.monotonic()
        failed: list[object] = []
        # Logins are renewed several times in this period.
        while time.monotonic() < began + 1.5:
            producer.produce("t", b"x", on_delivery=lambda error, _: failed.append(error))
            producer.poll(0.02)
        assert await asyncio.to_thread(producer.flush, 60) == 0
        assert failed and set(failed) == {None}
        assert all(not broker.login_failures.total for broker in trio.brokers.values())
    finally:
        await trio.stop(1, 2, 3)


async def test_a_broker_with_a_wrong_password_does_not_become_one(tmp_path: Path) -> None:
    trio = Trio(tmp_path, **sasl_properties("PLAIN"))
    await trio.start()
    try:
        endpoint = dict(trio.brokers[1].config.voters)[trio.active]
        beat: Any = {"broker_id": 1, "broker_epoch": 1, "current_metadata_offset": 0}
        for user, password, is_let_in in (
            ("broker", "broker secret", True),
            ("broker", "wrong", False),
            ("client", "client secret", False),
        ):
            peer = Peer(endpoint, "test", login=SaslCredentials("PLAIN", user, password))
            answer = await peer.call(BROKER_HEARTBEAT, 1, beat)
            assert (answer is not None) is is_let_in, user
            peer.close()
    finally:
        await trio.stop(1, 2, 3)
