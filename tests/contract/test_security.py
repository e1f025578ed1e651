"""Users, ACLs and quotas on a broker with an authorizer: ours, and Apache Kafka (-m kafka)."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
)
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.apache_kafka import apache_kafka
from tests.broker_core.server.raw_client import RawClient
from tests.contract.broker_process import BrokerProcess
from tests.ports import reserved_ports
from waylog.config import Endpoint, parse_endpoint
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import AppendError
from waylog.kafka.connection.security import connection_security

_LOGGER = logging.getLogger("librdkafka")
_SECURITY = {
    "listener_security_protocol_map": "LOGIN:SASL_PLAINTEXT",
    "listener_name_login_sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener_name_login_plain_sasl_jaas_config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="x" password="x" user_plain="plain-pw";'
    ),
    "listener_name_login_scram-sha-256_sasl_jaas_config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "listener_name_login_scram-sha-512_sasl_jaas_config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Clients that connect without a name, from this machine, are administrators.
    "super_users": "User:ANONYMOUS",
}


class Secured(NamedTuple):
    """The address for the super user, and the one where others log in."""

    plaintext: str
    login: str


@pytest.fixture(
    scope="module", params=["waylog", pytest.param("apache-kafka", marks=pytest.mark.kafka)]
)
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """Run a broker with a listener that requires a login."""
    login = f"127.0.0.1:{reserved_ports(1)[0]}"
    listener = f"LOGIN://{login}"
    if request.param == "apache-kafka":
        options = _SECURITY | {"listeners": listener, "advertised_listeners": listener}
        with apache_kafka(more=options) as servers:
            yield Secured(servers, login)
        return
    plaintext = f"127.0.0.1:{reserved_ports(1)[0]}"
    broker = BrokerProcess(
        tmp_path_factory.mktemp("secured"),
        **_SECURITY | {"listeners": f"PLAINTEXT://{plaintext},{listener}"},
    )
    broker.start()
    yield Secured(plaintext, login)
    assert broker.stop() == 0, "".join(broker.output)


@pytest.fixture
def root(secured: Secured) -> AdminClient:
    return AdminClient({"bootstrap.servers": secured.plaintext}, logger=_LOGGER)


@pytest.fixture
def topic(root: AdminClient) -> str:
    name = f"test-{uuid.uuid4().hex[:12]}"
    root.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


def eventually(check: Callable[[], Any]) -> Any:
    """Return a check's result once it stops failing: Apache Kafka applies changes a bit later."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return check()
        except (AssertionError, KafkaException):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def client(secured: Secured, user: str = "plain", password: str = "plain-pw") -> dict[str, Any]:
    return {
        "bootstrap_servers": secured.login,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN" if user == "plain" else "SCRAM-SHA-512",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


async def produce(options: dict[str, Any], topic: str) -> None:
    producer = AIOKafkaProducer(**options)
    try:
        await producer.start()
        await producer.send_and_wait(topic, b"hello")
    finally:
        await producer.stop()


async def consume(options: dict[str, Any], topic: str, group: str) -> bytes:
    consumer = AIOKafkaConsumer(topic, group_id=group, auto_offset_reset="earliest", **options)
    try:
        await consumer.start()
        value: bytes = (await asyncio.wait_for(consumer.getone(), 60)).value
        return value
    finally:
        await consumer.stop()


def allow(
    root: AdminClient,
    operation: Any,
    name: str,
    kind: Any = ResourceType.TOPIC,
    user: str = "User:plain",
    permission: Any = AclPermissionType.ALLOW,
    pattern: Any = ResourcePatternType.LITERAL,
) -> Any:
    rule = AclBinding(kind, name, pattern, user, "*", operation, permission)
    root.create_acls([rule])[rule].result(60)
    return rule


def matching(name: str | None, user: str | None = None) -> Any:
    """Return a filter of ACLs; confluent-kafka's stubs do not allow for a missing name."""
    anything: Any = None
    return AclBindingFilter(
        ResourceType.ANY, name or anything, ResourcePatternType.ANY, user or anything, anything,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip


def find(root: AdminClient, name: str) -> list[Any]:
    return list(root.describe_acls(matching(name)).result(60))


def test_who_has_no_right_writes_and_reads_nothing(secured: Secured, topic: str) -> None:
    with pytest.raises(TopicAuthorizationFailedError):
        asyncio.run(produce(client(secured), topic))


def test_rights_open_a_topic_and_a_group(secured: Secured, root: AdminClient, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    for operation in (AclOperation.WRITE, AclOperation.READ):
        allow(root, operation, topic)
    eventually(lambda: _expect(len(find(root, topic)) == 2))

    def attempt() -> None:
        try:
            asyncio.run(produce(client(secured), topic))
        except TopicAuthorizationFailedError as error:
            raise AssertionError from error

    eventually(attempt)
    with pytest.raises(GroupAuthorizationFailedError):
        asyncio.run(consume(client(secured), topic, group))
    allow(root, AclOperation.READ, group, ResourceType.GROUP)

    def read() -> bytes:
        try:
            return asyncio.run(consume(client(secured), topic, group))
        except GroupAuthorizationFailedError as error:
            raise AssertionError from error

    assert eventually(read) == b"hello"


def _expect(condition: bool) -> None:
    assert condition


def test_acls_are_listed_and_deleted(root: AdminClient) -> None:
    name = f"acl-{uuid.uuid4().hex[:8]}"
    literal = allow(root, AclOperation.READ, name)
    prefixed = allow(root, AclOperation.ALL, name, pattern=ResourcePatternType.PREFIXED)
    denied = allow(
        root, AclOperation.WRITE, name, user="User:bert", permission=AclPermissionType.DENY
    )
    eventually(lambda: _expect({*find(root, name)} == {literal, prefixed, denied}))
    bert = matching(None, "User:bert")
    assert list(root.delete_acls([bert])[bert].result(60)) == [denied]
    eventually(lambda: _expect({*find(root, name)} == {literal, prefixed}))


def test_a_client_without_rights_makes_no_acls_and_sees_no_topics(
    secured: Secured, topic: str
) -> None:
    admin = AdminClient(
        {
            "bootstrap.servers": secured.login,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "plain",
            "sasl.password": "plain-pw",
        },
        logger=_LOGGER,
    )
    with pytest.raises(KafkaException) as raised:
        allow(admin, AclOperation.READ, "x")
    assert raised.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert topic not in admin.list_topics(timeout=60).topics


def test_a_user_is_made_logs_in_and_is_removed(
    secured: Secured, root: AdminClient, topic: str
) -> None:
    user = f"user-{uuid.uuid4().hex[:8]}"
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    made = UserScramCredentialUpsertion(user, scram, b"secret", b"salt of the test")
    root.alter_user_scram_credentials([made])[user].result(60)
    allow(root, AclOperation.WRITE, topic, user=f"User:{user}")

    def described() -> Any:
        answers: Any = root.describe_user_scram_credentials([user])
        return answers[user].result(60)

    info = eventually(described).scram_credential_infos
    assert [(each.mechanism, each.iterations) for each in info] == [
        (ScramMechanism.SCRAM_SHA_512, 8192)
    ]

    def log_in() -> None:
        try:
            asyncio.run(produce(client(secured, user, "secret"), topic))
        except Exception as error:
            raise AssertionError from error

    eventually(log_in)
    removed = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)
    root.alter_user_scram_credentials([removed])[user].result(60)

    def gone() -> None:
        # pytest.raises would end the test where the user is still there.
        try:
            described()
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
        else:
            raise AssertionError("the user is still there")

    eventually(gone)
    with pytest.raises(KafkaException) as raised:
        root.alter_user_scram_credentials([removed])[user].result(60)
    assert raised.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_platforms_own_producer_and_reader_log_in(
    secured: Secured, root: AdminClient, topic: str, mechanism: str
) -> None:
    user, password = "plain", "plain-pw"
    if mechanism != "PLAIN":
        user, password = f"user-{uuid.uuid4().hex[:8]}", "secret"
        scram = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], 8192)
        made = UserScramCredentialUpsertion(user, scram, password.encode(), b"salt of the test")
        root.alter_user_scram_credentials([made])[user].result(60)
    for operation in (AclOperation.WRITE, AclOperation.READ):
        allow(root, operation, topic, user=f"User:{user}")
    security = connection_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }
    )

    async def round_trip() -> set[bytes]:
        loop = asyncio.get_running_loop()
        producer = BatchProducer(
            secured.login, "writer", loop, delivery_timeout_ms=5000, security=security
        )
        try:
            async with asyncio.timeout(60):
                await asyncio.gather(
                    *(producer.append(topic, b"%d" % number) for number in range(100))
                )
        except (AppendError, TimeoutError) as error:
            raise AssertionError from error
        finally:
            await producer.close(0)
        caught_up = asyncio.Event()
        values: set[bytes] = set()
        reader = BatchReader(
            *(secured.login, "reader", topic, loop),
            on_records=lambda records: values.update(each.value() for each in records),
            on_caught_up=caught_up.set,
            security=security,
        )
        reader.start()
        await asyncio.wait_for(caught_up.wait(), 60)
        await reader.close()
        return values

    # The rights may have to arrive at the broker first; what is appended twice is the same.
    assert eventually(lambda: asyncio.run(round_trip())) == {b"%d" % each for each in range(100)}


def test_too_few_iterations_are_refused(root: AdminClient) -> None:
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 1)
    made = UserScramCredentialUpsertion("weak", scram, b"secret", b"salt")
    with pytest.raises(KafkaException) as raised:
        root.alter_user_scram_credentials([made])["weak"].result(60)
    assert raised.value.args[0].code() == KafkaError.UNACCEPTABLE_CREDENTIAL


QUOTA_ERRORS = [
    ({"planet": "earth"}, "producer_byte_rate", 1.0),
    ({"user": "a"}, "no_such_quota", 1.0),
    ({"user": "a"}, "producer_byte_rate", -1.0),
    ({"ip": "1.2.3.4"}, "producer_byte_rate", 1.0),
]


async def _alter_quota(
    endpoint: Endpoint, names: dict[str, str | None], key: str, value: float | None
) -> dict[str, Any]:
    from broker_core.protocol.definitions import ALTER_CLIENT_QUOTAS

    raw = await RawClient.connect(endpoint)
    entity = [{"entity_type": kind, "entity_name": name} for kind, name in names.items()]
    operation = {"key": key, "value": value or 0.0, "remove": value is None}
    body = {"entries": [{"entity": entity, "ops": [operation]}], "validate_only": False}
    answer = await raw.call(ALTER_CLIENT_QUOTAS, 1, body)
    await raw.close()
    return answer


async def _describe_quotas(endpoint: Endpoint, user: str) -> Any:
    from broker_core.protocol.definitions import DESCRIBE_CLIENT_QUOTAS

    raw = await RawClient.connect(endpoint)
    component = {"entity_type": "user", "match_type": 0, "match": user}
    body = {"components": [component], "strict": False}
    answer = await raw.call(DESCRIBE_CLIENT_QUOTAS, 1, body)
    await raw.close()
    return answer["entries"]


def test_a_quota_is_set_shown_and_removed(secured: Secured) -> None:
    endpoint = parse_endpoint(secured.plaintext)
    user = f"user-{uuid.uuid4().hex[:8]}"
    names: dict[str, str | None] = {"user": user}
    answer = asyncio.run(_alter_quota(endpoint, names, "producer_byte_rate", 5000.0))
    assert answer["entries"][0]["error_code"] == 0
    expected = [
        {
            "entity": [{"entity_type": "user", "entity_name": user}],
            "values": [{"key": "producer_byte_rate", "value": 5000.0}],
        }
    ]
    eventually(lambda: _expect(asyncio.run(_describe_quotas(endpoint, user)) == expected))
    asyncio.run(_alter_quota(endpoint, names, "producer_byte_rate", None))
    eventually(lambda: _expect(asyncio.run(_describe_quotas(endpoint, user)) == []))


@pytest.mark.parametrize(("names", "key", "value"), QUOTA_ERRORS, ids=str)
def test_a_quota_that_makes_no_sense_is_refused(
    secured: Secured, names: dict[str, str | None], key: str, value: float
) -> None:
    endpoint = parse_endpoint(secured.plaintext)
    answer = asyncio.run(_alter_quota(endpoint, names, key, value))
    assert answer["entries"][0]["error_code"] == 42


@pytest.mark.long
def test_a_quota_makes_a_producer_wait(secured: Secured, root: AdminClient, topic: str) -> None:
    endpoint = parse_endpoint(secured.plaintext)
    allow(root, AclOperation.WRITE, topic)
    names: dict[str, str | None] = {"user": "plain"}
    asyncio.run(_alter_quota(endpoint, names, "producer_byte_rate", 10_000.0))

    async def fill() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with AIOKafkaProducer(**client(secured)) as producer:
            for _ in range(4):
                await producer.send_and_wait(topic, bytes(50_000))
        return loop.time() - began

    try:
        # 200,000 bytes, of which the quota of ten seconds may come at once.
        assert eventually(lambda: _long_enough(fill)) > 3
    finally:
        asyncio.run(_alter_quota(endpoint, names, "producer_byte_rate", None))


def _long_enough(fill: Callable[[], Any]) -> float:
    try:
        seconds: float = asyncio.run(fill())
    except TopicAuthorizationFailedError as error:
        raise AssertionError from error
    assert seconds > 3
    return seconds
