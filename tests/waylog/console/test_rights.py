"""The console's commands as a user who has few rights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.contract.broker_process import BrokerProcess
from tests.forked_commands import ForkedCommands
from tests.waylog.console.terminal import Terminal

USERS = {"root": "r", "anna": "a"}


class UserTerminal(Terminal):
    """Runs commands that log in as one user."""

    def __init__(self, bootstrap_servers: str, commands: ForkedCommands, user: str) -> None:
        super().__init__(bootstrap_servers, commands)
        self.properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user],
        }

    def run(self, *words: str, stdin: str = "", status: int = 0) -> str:
        login = [word for pair in self.properties.items() for word in ("-X", "=".join(pair))]
        return super().run(*words, *login, stdin=stdin, status=status)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    broker = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN",
        sasl_jaas_config=f"PlainLoginModule required {users};",
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:root",
    )
    yield broker.start()
    broker.stop()


@pytest.fixture(scope="module")
def root(servers: str, commands: ForkedCommands) -> UserTerminal:
    root = UserTerminal(servers, commands, "root")
    root.run("topics", "create", "trips", "--partitions", "1")
    root.run("produce", "trips", stdin="a\nb\nc\n")
    root.run("groups", "reset", "readers", "--topic", "trips", "--to", "beginning")
    admin = AdminClient({"bootstrap.servers": servers, **root.properties})
    reads = [
        AclBinding(
            ResourceType.TOPIC, "trips", ResourcePatternType.LITERAL, "User:anna", "*",
            AclOperation.READ, AclPermissionType.ALLOW,
        )
    ]  # fmt: skip
    for future in admin.create_acls(reads).values():
        future.result(30)
    return root


@pytest.fixture
def anna(servers: str, commands: ForkedCommands, root: UserTerminal) -> UserTerminal:
    """Give the terminal of a user who may read topic trips, and nothing else."""
    return UserTerminal(servers, commands, "anna")


def test_records_are_read_without_a_right_to_any_group(anna: UserTerminal) -> None:
    said = anna.run("consume", "trips", "--from", "-2", "--exit")
    assert said == "b\nc\n"
    assert anna.run("consume", "trips", "--from", "beginning", "--max", "1") == "a\n"


def test_a_member_of_a_group_is_told_which_right_is_missing(anna: UserTerminal) -> None:
    said = anna.run("consume", "trips", "--group", "readers", status=1)
    assert said == (
        "waylog consume: this user may not be a member of group readers: the right READ on the "
        "group is missing\n"
    )


def test_a_list_of_groups_says_which_ones_it_leaves_out(
    anna: UserTerminal, root: UserTerminal
) -> None:
    assert [row["group"] for row in root.rows("groups", "list")] == ["readers"]
    assert anna.run("groups", "list") == (
        "nothing to show; groups on which this user has no right DESCRIBE are left out\n"
    )
    assert anna.run("groups", "list", "--json") == ""
