"""Mistakes of people at a terminal: each ends soon, with a helpful line and an exit status.

The goal is five seconds. On a busy machine Python alone needs that long, so the test allows more;
the bugs that it guards against waited for 40 s, for five minutes or for ever. The commands are
forked from one process, since a hundred and fifty starts of Python would take a minute and more.
"""

from __future__ import annotations

import concurrent.futures
import re
import shlex
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import trustme

from gateway.users.database import UserStore
from tests.environments import own_environment
from tests.forked_commands import Ended, ForkedCommands, forked_commands
from tests.ports import reserved_ports
from waylog.cli import COMMANDS

pytestmark = pytest.mark.early

LIMIT_S: Final = 45.0
_AT_ONCE: Final = 3
_FAILED: Final = 1
_USAGE: Final = 2

_GPX: Final = (
    '<gpx version="1.1" creator="test" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>'
    '<trkpt lat="47.1" lon="9.5"><time>2026-01-02T03:04:05Z</time></trkpt></trkseg></trk></gpx>'
)


class Mistake(NamedTuple):
    """A command, its exit status, and a pattern of the last line that it prints.

    Words in braces are addresses and files of the fixture `there`.
    """

    words: str
    status: int
    line: str


_UP: Final = "up --http 127.0.0.1:0 --mqtt 127.0.0.1:0 --kafka 127.0.0.1:0 "
_GATEWAY: Final = "gateway --open --http 127.0.0.1:0 --mqtt 127.0.0.1:0 "
_NOBODY: Final = r"no Kafka broker answers at 127\.0\.0\.1:\d+: connection refused; is `waylog up`"
_LIST: Final = r"--bootstrap-servers nonsense: HOST:PORT,HOST:PORT... is expected"
_AWAY: Final = (
    r"webhdfs://127\.0\.0\.1:\d+/h: 127\.0\.0\.1:\d+: Connection refused; is it running, and is the"
)
_USERS_FOLDER: Final = (
    r"--users \S+: it is a folder; the database's file is expected, as \S+/users\.db$"
)
_USERS_FILE: Final = (
    r"--users \S+: it is not a database; give the users\.db of the platform, or its"
)

MISTAKES: Final = (
    # Wrong commands and options
    Mistake("uzer add ada", _USAGE, r"there is no command uzer; did you mean user\?"),
    Mistake(
        "up --htpp 127.0.0.1:1",
        _USAGE,
        r"waylog up: error: .*did you mean --http\?; see `waylog up --help`$",
    ),
    Mistake("topics list --jsn", _USAGE, r"waylog topics list: error: .*did you mean --json"),
    Mistake("geo info {file}", _USAGE, r"waylog geo info: error: unrecognized arguments"),
    Mistake("user", _USAGE, r"waylog user: error: .*required: ACTION"),
    # waylog up
    Mistake(
        "up --http 127.0.0.1:0 --mqtt 127.0.0.1:0 --data {new} --bootstrap-servers {closed}",
        _FAILED,
        _NOBODY,
    ),
    Mistake("up --data {new} --bootstrap-servers nonsense", _USAGE, _LIST),
    Mistake(
        "up --data {new} --bootstrap-servers {silent}",
        _FAILED,
        r"accepts connections and says nothing; is that the port of a Kafka broker\?",
    ),
    Mistake(_UP + "--data {new} --geo /typo", _USAGE, r"--geo /typo: no such file.*geo import"),
    Mistake(_UP + "--data {file}", _USAGE, r"--data \S+: nothing can be written there .* a file"),
    Mistake(_UP + "--data /proc/x", _USAGE, r"--data /proc/x: nothing can be written there"),
    Mistake(
        _UP + "--data {damaged}", _FAILED, r"users.db is not an intact database .* put a copy back"
    ),
    Mistake(
        "up --data {new} --mqtt 127.0.0.1:0 --kafka 127.0.0.1:0 --http {silent}",
        _FAILED,
        r"cannot listen on \S+: address already in use, by .*process \d+\); --http HOST:PORT",
    ),
    Mistake("up --data {new} --http nonsense", _USAGE, r"HOST:PORT is expected"),
    Mistake(_UP + "--data {new} --history ftp://x/y", _USAGE, r"--history ftp://x/y: a folder, or"),
    Mistake(_UP + "--data {new} --history s3://", _USAGE, r"--history s3://: .*no bucket"),
    Mistake(_UP + "--data {new} --history {file}", _USAGE, r"--history \S+: nothing can be"),
    Mistake(_UP + "--data {new} --brokers 0", _USAGE, r"must be at least 1"),
    Mistake(_UP + "--data {new} --gateway-options '\"'", _USAGE, r"--gateway-options: No closing"),
    # Options that contradict each other
    Mistake(
        "up --data {new} --bootstrap-servers {closed} --local-accounts self",
        _USAGE,
        r"--local-accounts is for the brokers that `waylog up` starts; it starts none with --boot",
    ),
    Mistake(
        "up --data {new} --bootstrap-servers {closed} --local-accounts self",
        _USAGE,
        r"--local-accounts is for the brokers that",
    ),
    Mistake("up --data {new} --bootstrap-servers=", _USAGE, r"--bootstrap-servers : HOST:PORT"),
    Mistake(
        _UP + "--data {new} --no-history --history-options='--engine arrow'",
        _USAGE,
        r"--history-options is for the history job; --no-history starts none",
    ),
    Mistake(
        _UP + "--data {new} --no-history --places-interval 60",
        _USAGE,
        r"--places-interval is for the history job",
    ),
    Mistake(
        _UP + "--data {new} --gateway-options='--http 127.0.0.1:1'",
        _USAGE,
        r"--gateway-options: `waylog up` decides about --http itself",
    ),
    Mistake(
        _UP + "--data {new} --resolver-options=--from-earliest",
        _USAGE,
        r"--resolver-options: `waylog up` decides about --from-earliest itself",
    ),
    Mistake(
        _UP + "--data {new} --history-options=--once",
        _USAGE,
        r"--history-options: `waylog up` decides about --once itself",
    ),
    # Options that its processes would refuse are refused before any of them starts
    Mistake(
        _UP + "--data {new} --no-history --resolver-options='--movment 3'",
        _USAGE,
        r"up: resolver: unrecognized arguments: --movment; did you mean --movement-threshold\?",
    ),
    Mistake(
        _UP + "--data {new} --resolver-options=--resend-after=0", _USAGE, r"--resend-after more"
    ),
    Mistake(
        _UP + "--data {new} --resolver-options=--fallback=typo",
        _USAGE,
        r"resolver: --fallback typo",
    ),
    Mistake(
        _UP + "--data {new} --geo {file}", _USAGE, r"up: geo: /\S+/file: not a geocoding index"
    ),
    Mistake(
        _UP + "--data {new} --history webhdfs://h:9870/x",
        _USAGE,
        r"history: .* name a --checkpoint",
    ),
    Mistake(_UP + "--data {new} --places-interval 0", _USAGE, r"--places-interval are more than 0"),
    Mistake(_UP + "--data {new} --history-options=--enigne=arrow", _USAGE, r"mean --engine\?"),
    Mistake(
        _UP + "--data {new} --resolver-options --renew",
        _USAGE,
        r"expected one argument; .* given as --resolver-options='--renew'",
    ),
    Mistake(
        _UP + "--data {new} --push-contact foo", _USAGE, r"up: gateway: --push-contact is a mail"
    ),
    Mistake(
        _UP + "--data {new} --trusted-proxy foo", _USAGE, r"gateway: --trusted-proxy: 'foo' does"
    ),
    Mistake(
        _UP + "--data {new} --proxy-protocol", _USAGE, r"--proxy-protocol needs --trusted-proxy"
    ),
    Mistake(_UP + "--data {new} --host a/b", _USAGE, r"gateway: --host: "),
    Mistake(
        _UP + "--data {new} --gateway-options=--mqtts=x:1", _USAGE, r"--mqtts needs --tls-cert"
    ),
    Mistake(
        _UP + "--data {new} --gateway-options='--mqtts {silent} --tls-certificate {certificate} "
        "--tls-key {key}'",
        _FAILED,
        r"cannot listen on 127\S+: .* in use, by .*; --mqtts HOST:PORT chooses another",
    ),
    Mistake(
        _UP + "--data {new} --gateway-options='--tls-certificate /typo --tls-key /typo'",
        _USAGE,
        r"up: gateway: --tls-certificate /typo: No such file",
    ),
    Mistake(
        _UP + "--data {new} --gateway-options='--tls-certificate {file} --tls-key {file}'",
        _USAGE,
        r"--tls-certificate \S+/file: it is not a certificate in PEM",
    ),
    Mistake(
        _UP + "--data {new} --gateway-options='--tls-certificate {certificate} --tls-key {file}'",
        _USAGE,
        r"--tls-key \S+/file: it is not a private key in PEM",
    ),
    Mistake(
        _UP + "--data {new} --gateway-options='--tls-certificate {certificate} --tls-key {key} "
        "--tls-client-ca {file}'",
        _USAGE,
        r"--tls-client-ca \S+/file: it is not in PEM",
    ),
    # Single processes
    Mistake("broker --config /typo", _USAGE, r"/typo: cannot be read: No such file"),
    Mistake("broker --config {file}", _USAGE, r"line 1: expected name=value"),
    Mistake("broker --config {binary}", _USAGE, r"binary: is no text file in UTF-8"),
    Mistake(
        "broker --config {properties} --override log.dirs={new} "
        "--override listeners=PLAINTEXT://{silent}",
        _USAGE,
        r"cannot listen on 127\.0\.0\.1:\d+: address already in use, by .*listeners \(PLAINTEXT\)",
    ),
    Mistake(
        "broker --config {properties} --override log.dirs={file}",
        _USAGE,
        r"log\.dirs \S+/file: nothing can be written there \(it is a file, not a folder\); choose",
    ),
    Mistake(
        "gateway --mqtt none --geo-url typo", _USAGE, r"typo: http://HOST:PORT or https://HOST is"
    ),
    Mistake("gateway --mqtt none --bootstrap-servers nonsense", _USAGE, _LIST),
    Mistake("gateway --trusted-proxy x", _USAGE, r"--trusted-proxy: 'x' does not appear to be"),
    Mistake("gateway --users {folder}", _USAGE, _USERS_FOLDER),
    Mistake("gateway --users {binary}", _USAGE, _USERS_FILE),
    Mistake(
        _GATEWAY + "--metrics-token-file {folder}",
        _USAGE,
        r"--metrics-token-file \S+: it is a folder; a file is expected$",
    ),
    Mistake(
        "broker --config {properties} --override log.dirs=/proc/x",
        _USAGE,
        r"log\.dirs /proc/x: nothing can be written there \(no such file or directory\); choose",
    ),
    Mistake("gateway --users {file}/users.db", _USAGE, r"--users \S+: nothing can be written"),
    Mistake(_GATEWAY + "--http {silent}", _USAGE, r"cannot listen on \S+: address already in use"),
    Mistake(_GATEWAY + "--mqtt {silent}", _USAGE, r"already in use, by .*; --mqtt HOST:PORT"),
    Mistake(_GATEWAY + "--http {free} --mqtt {free}", _USAGE, r"--http and --mqtt both want 127"),
    Mistake(
        _GATEWAY + "--mqtts {silent} --tls-certificate {certificate} --tls-key {key}",
        _USAGE,
        r"already in use, by .*; --mqtts HOST:PORT chooses another",
    ),
    Mistake(_GATEWAY + "--http no.invalid:1", _USAGE, r"--http no.invalid:1: the name of a host"),
    Mistake(_GATEWAY + "--data {file}", _USAGE, r"--data \S+: nothing can be written there"),
    Mistake(_GATEWAY + "--views {file}", _USAGE, r"--views \S+: nothing can be written there"),
    Mistake("resolver --from-earliest --bootstrap-servers {closed}", _FAILED, _NOBODY),
    Mistake("resolver compare --topic t --bootstrap-servers {closed}", _FAILED, _NOBODY),
    Mistake("resolver --from-earliest --topic a/b", _USAGE, r"--topic 'a/b': 1 to 249 letters"),
    Mistake("resolver --from-earliest --renew", _USAGE, r"--renew is for the resolver at work"),
    Mistake("resolver --geo /typo", _USAGE, r"/typo: there is no such index"),
    Mistake("resolver --geo {file}", _USAGE, r"file: not a geocoding index"),
    Mistake(
        "resolver --movment 3", _USAGE, r"resolver: error: .*: --movment; did you mean --movem"
    ),
    Mistake("resolver --bootstrap-servers nonsense", _USAGE, _LIST),
    Mistake("bridge --mqtt {closed} --users {folder}", _USAGE, _USERS_FOLDER),
    Mistake("bridge --mqtt {closed} --users /typo", _USAGE, r"--users: there is no /typo$"),
    Mistake("bridge --mqtt nonsense", _USAGE, r"HOST:PORT is expected"),
    Mistake(
        "bridge --mqtt {closed} --user a --password-file /typo",
        _USAGE,
        r"--password-file /typo: No such",
    ),
    Mistake("bridge --mqtt {closed} --tls --tls-ca /typo", _USAGE, r"--tls-ca /typo: No such file"),
    Mistake(
        "bridge --mqtt {closed} --tls --tls-certificate {certificate} --tls-key {other_key}",
        _USAGE,
        r"--tls-key \S+: it is not the key of \S+",
    ),
    Mistake(
        "bridge --mqtt {closed} --tls --tls-ca {file}", _USAGE, r"--tls-ca \S+: it is not in PEM"
    ),
    Mistake(_UP + "--data {new} --tiles /typo", _USAGE, r"up: geo: --tiles /typo: No such file"),
    Mistake("geo serve --index /typo", _USAGE, r"/typo: there is no such index"),
    Mistake("geo serve --listen {silent}", _USAGE, r"cannot listen on .*in use"),
    Mistake("geo import /typo.osm.pbf -o {new}", _FAILED, r"/typo.osm.pbf: there is no such file"),
    Mistake("geo reverse 95 0", _FAILED, r"latitude must be between -90 and 90"),
    Mistake("geo reverse --batch /typo", _FAILED, r"/typo: No such file"),
    # The history
    Mistake("history run --once --out {new} --bootstrap-servers nonsense", _USAGE, _LIST),
    Mistake(
        "history run --once --out {new} --bootstrap-servers {closed}",
        _FAILED,
        r"127\.0\.0\.1:\d+: the log did not answer",
    ),
    *(
        Mistake(words.replace("URL", "webhdfs://{closed}/h"), _FAILED, _AWAY)
        for words in (
            "history run --engine arrow --out URL --bootstrap-servers {closed}",
            "history run --out URL --checkpoint {new} --bootstrap-servers {closed}",
            "history compact --out URL",
            "history erase --out URL --user ada --yes",
            "history export --out URL --user ada",
            "history files --out URL",
            "history publish --out URL",
            "places run --once --history URL --out {new}",
            "places show --places URL",
            "fleet quality --history URL",
        )
    ),
    Mistake("history files --out webhdfs://{silent}/h", _FAILED, r": timed out; is it running"),
    Mistake("history run --master local[x]", _USAGE, r"--master local\[x\]: local, local\[N\] \("),
    Mistake("history run --out ftp://x", _USAGE, r"--out ftp://x: a folder, or a URL that"),
    Mistake("history export --user ada --out /typo", _FAILED, r"/typo: there is no history"),
    Mistake("fleet heatmap --resolution 16", _USAGE, r"argument --resolution: 16: 0 to 15 is"),
    Mistake(
        "history export --user a --from 2026-05-02 --to 2026-05-01",
        _USAGE,
        r"--from 2026-05-02 is later than --to 2026-05-01",
    ),
    Mistake("fleet gaps --from 2026-05-02 --to 2026-05-01", _USAGE, r"is later than --to"),
    Mistake("fleet gaps --from typo", _USAGE, r"--from: typo: a date is expected, as in"),
    Mistake("places show --places /typo", _FAILED, r"/typo: there are no places yet"),
    Mistake("places run --once --history /typo --out {new}", _FAILED, r"/typo: there is no hist"),
    # Users and devices
    Mistake("user add ada --data /typo", _FAILED, r"no platform has its data in /typo.*--create"),
    Mistake("user list --users {torn}", _FAILED, r"cannot be opened as a database"),
    Mistake("user list --users {damaged}/users.db", _USAGE, _USERS_FILE),
    Mistake("user list --users {folder}", _USAGE, _USERS_FOLDER),
    Mistake("user list --users /proc", _USAGE, r"--users /proc: it is a folder; .*--data names"),
    Mistake("user list --users /dev/null", _USAGE, r"--users /dev/null: it is no file; the"),
    Mistake("user add ada --create --users {folder}", _USAGE, _USERS_FOLDER),
    Mistake("user ensure ada --token-file {new} --users {binary}", _USAGE, _USERS_FILE),
    Mistake("user limit ada --users {binary}", _USAGE, _USERS_FILE),
    Mistake("device token ada/phone --users {folder}", _USAGE, _USERS_FOLDER),
    Mistake("device revoke ada/phone --users {binary}", _USAGE, _USERS_FILE),
    Mistake("link --users {folder}", _USAGE, _USERS_FOLDER),
    Mistake("link --users {binary}", _USAGE, _USERS_FILE),
    Mistake("device token ada", _FAILED, r"ada is not a device: USER/DEVICE is expected"),
    Mistake("device token ada/phone --data /typo", _FAILED, r"no platform has its data in /typo"),
    Mistake("device revoke ada/phone --users {users}", _FAILED, r"ada/phone has no token"),
    Mistake("device invite ada/phone --url typo --users {users}", _FAILED, r"typo: http://HOST"),
    Mistake(
        "device card ada/phone --face /typo --users {users}", _FAILED, r"device: /typo: No such"
    ),
    Mistake(
        "user allow ada publish a/#/b --users {users}", _FAILED, r"'a/#/b' is not a topic filter"
    ),
    Mistake("link --gateway typo --users {users}", _USAGE, r"typo: http://HOST:PORT or"),
    # Replay and load
    Mistake("replay {binary}", _FAILED, r"binary: not a format known here: GPX, "),
    Mistake(
        "load --mqtt {closed} --bootstrap-servers {closed} --user ada --token-file /typo",
        _USAGE,
        r"load: --token-file /typo: No such file",
    ),
    Mistake("replay /typo.gpx", _FAILED, r"/typo.gpx: No such file"),
    Mistake(
        "replay {gpx} --gateway http://{closed}",
        _FAILED,
        r"nobody can be reached at 127\.0\.0\.1:\d+ \(connection refused\).*--gateway names",
    ),
    Mistake("replay {gpx} --via mqtt --mqtt {closed}", _FAILED, r"nobody can be .*--mqtt names"),
    Mistake("replay {gpx} --via kafka --bootstrap-servers {closed}", _FAILED, _NOBODY),
    Mistake("replay {gpx} --token-file /typo", _FAILED, r"/typo: No such file"),
    Mistake("replay {gpx} --gateway http://", _USAGE, r"--gateway http://: http://HOST:PORT is"),
    Mistake("load --users 0", _USAGE, r"0 is not a positive number"),
    # The console
    Mistake("topics list --bootstrap-servers {closed}", _FAILED, _NOBODY),
    Mistake("topics list --bootstrap-servers {silent}", _FAILED, r"says nothing"),
    Mistake("topics list --bootstrap-servers no.invalid:1", _FAILED, r"no.invalid cannot be reso"),
    Mistake("topics list -X typo=1", _USAGE, r'No such configuration property: "typo"'),
    Mistake("topics create t --partitions 0", _USAGE, r"--partitions: 0: a whole number of at"),
    Mistake("topics list --command-config /typo", _USAGE, r"/typo: cannot be read"),
    Mistake("produce t --bootstrap-servers {closed}", _FAILED, _NOBODY),
    Mistake("consume t --bootstrap-servers {closed}", _FAILED, _NOBODY),
    Mistake("consume t --share s --from beginning", _USAGE, r"it goes without --from"),
    Mistake("groups list --bootstrap-servers {closed}", _FAILED, _NOBODY),
    Mistake("cluster reassign --list t", _USAGE, r"--list goes without TOPIC\[:PARTITION\]"),
    Mistake("cluster reassign --list --wait", _USAGE, r"--list goes without --wait"),
    Mistake("cluster reassign --cancel t:0=1", _USAGE, r"--cancel takes TOPIC"),
    Mistake("cluster describe --bootstrap-servers {closed}", _FAILED, _NOBODY),
)


#: What most commands import later.
_LATER: Final = (
    "gateway.process.gateway_process",
    "broker_core.server.runtime",
    "waylog.kafka.reach",
)


def _run(commands: ForkedCommands, mistake: Mistake, names: dict[str, str], folder: Path) -> Ended:
    words = shlex.split(mistake.words.format_map(names | {"new": str(folder / "new")}))
    folder.mkdir()
    environment = own_environment()
    environment.pop("WAYLOG_DATA", None)
    return commands.run(
        *words,
        cwd=folder,
        environment=environment | {"PYTHONPATH": str(Path(__file__).parents[3])},
        timeout_s=LIMIT_S,
    )


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Give addresses where nobody listens or answers, and files with wrong content."""
    folder = tmp_path_factory.mktemp("there")
    (folder / "file").write_text("neither this nor that\n")
    (folder / "track.gpx").write_text(_GPX)
    (folder / "binary").write_bytes(b"\x7fELF\r\xd0,\r" * 100)
    (folder / "properties").write_text("node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    with closing(UserStore(folder / "users.db")) as users:
        users.add("ada")
    certificates = trustme.CA()
    pems = certificates.issue_cert("localhost"), certificates.issue_cert("localhost")
    for name, pem in zip(("certificate", "other"), pems, strict=True):
        pem.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        pem.private_key_pem.write_to_path(folder / f"{name}.key")
    (folder / "damaged").mkdir()
    (folder / "damaged" / "users.db").write_bytes(b"this is not SQLite" * 200)
    (folder / "torn.db").write_bytes(b"SQLite format 3\0" + b"this is not SQLite" * 200)
    with socket.socket() as closed, socket.create_server(("127.0.0.1", 0)) as silent:
        closed.bind(("127.0.0.1", 0))  # taken, but not listening
        yield {
            "free": f"127.0.0.1:{reserved_ports(1)[0]}",
            "closed": f"127.0.0.1:{closed.getsockname()[1]}",
            "silent": f"127.0.0.1:{silent.getsockname()[1]}",
            "file": str(folder / "file"),
            "certificate": str(folder / "certificate.pem"),
            "key": str(folder / "certificate.key"),
            "other_key": str(folder / "other.key"),
            "gpx": str(folder / "track.gpx"),
            "binary": str(folder / "binary"),
            "properties": str(folder / "properties"),
            "users": str(folder / "users.db"),
            "torn": str(folder / "torn.db"),
            "damaged": str(folder / "damaged"),
            "folder": str(folder / "damaged"),
        }


@pytest.fixture(scope="module")
def ended(
    there: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Mistake, concurrent.futures.Future[Ended]]]:
    """Run all mistakes, several at once, since most of their time is waiting."""
    folder = tmp_path_factory.mktemp("mistakes")
    modules = (*(command.module for command in COMMANDS), *_LATER)
    with (
        forked_commands(tmp_path_factory.mktemp("commands"), *modules) as commands,
        concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        yield {
            mistake: pool.submit(_run, commands, mistake, there, folder / str(number))
            for number, mistake in enumerate(MISTAKES)
        }


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.words)
@pytest.mark.timeout(600)
def test_a_mistake_ends_with_one_line_and_a_status(
    mistake: Mistake, ended: dict[Mistake, concurrent.futures.Future[Ended]]
) -> None:
    status, stdout, stderr = ended[mistake].result()
    printed = stdout + stderr
    assert status == mistake.status, printed
    assert "Traceback" not in printed
    *before, last = printed.splitlines()
    assert re.search(mistake.line, last), printed
    assert last.startswith("waylog"), printed
    assert not before, printed
