"""`make fuzz`: fuzz the parsers with libFuzzer, guided by coverage of the Cython code.

atheris sees into Cython only when that is compiled by clang with AddressSanitizer, and its own
runtime comes first. This builds such a copy in a folder of its own, seeds the corpus with a request
of every API and version, and fuzzes each target for some seconds.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker_core", "gateway", "waylog")
BROKER = ("requests", "batches", "login")
GATEWAY = ("mqtt-packets", "mqtt-session", "fixes", "formats", "http-heads")
CLIENTS = ("fetched-batches", "answers", "schemas", "schema-values", "converters")
PROGRAMS = {"fuzz_broker.py": BROKER, "fuzz_gateway.py": GATEWAY, "fuzz_clients.py": CLIENTS}
TARGETS = BROKER + GATEWAY + CLIENTS


def _extensions() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    paths: list[str] = settings["tool"]["waylog"]["extensions"]
    return [path for path in paths if path.startswith(PACKAGES)]


def build(folder: Path, clang: str) -> None:
    """Build a copy of the packages with instrumented parsers."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package,
            folder / package,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("*.so", "__pycache__"),
        )
    flags = "-fsanitize=address,fuzzer-no-link -O1 -g -fno-omit-frame-pointer"
    environment = os.environ | {
        "CC": clang,
        "LDSHARED": f"{clang} -shared",
        "CFLAGS": flags,
    }
    cythonize = Path(sys.executable).with_name("cythonize")
    for path in _extensions():
        subprocess.run(
            [cythonize, "-3", "-i", path], cwd=folder, env=environment, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip


def seed(corpus: Path) -> None:
    """Write the seeds of the broker: a request of every API and version, batches, logins."""
    from broker_core.protocol.batch_builder import build_batch
    from broker_core.protocol.definitions import APIS
    from broker_core.protocol.encoder import encode
    from tests.broker_core.protocol.test_definitions import Generator

    for target in TARGETS:
        (corpus / target).mkdir(parents=True, exist_ok=True)
    for key, api in APIS.items():
        for version in range(api.versions[0], api.versions[1] + 1):
            header = struct.pack(">hhih", key, version, 1, 1) + b"x"
            if api.is_flexible(version):
                header += b"\0"
            body = encode(
                api.request_plan(version),
                Generator(f"{key}-{version}").message(api.request_plan(version)),
            )
            (corpus / "requests" / f"{key}-{version}").write_bytes(header + body)
    source = random.Random(1)
    for compression in range(5):
        rows = [(1, b"k", source.randbytes(20), (("h", b"v"),)) for _ in range(3)]
        batch = bytes(build_batch(rows, compression=compression))
        for target in ("batches", "fetched-batches"):
            (corpus / target / str(compression)).write_bytes(batch)
    seed_gateway(corpus)
    seed_schemas(corpus)
    (corpus / "login" / "plain").write_bytes(b"\0anna\0password")
    (corpus / "login" / "scram").write_bytes(b"n,,n=anna,r=abc\xff\xfec=biws,r=abc,p=AAAA")


def seed_gateway(corpus: Path) -> None:
    """Write the seeds of the gateway: packets after each version's CONNECT, bodies, a head."""
    subscribe, publish = b"\x82\x08\0\1\0\3a/b\2", b"\x32\x08\0\3a/b\0\2x"
    for version, name in ((3, b"\0\6MQIsdp"), (4, b"\0\4MQTT"), (5, b"\0\4MQTT")):
        properties = b"\x05\x11\0\0\0\x09" if version == 5 else b""
        body = name + bytes([version, 2]) + b"\0\x3c" + properties + b"\0\5phone"
        connect = b"\x10" + bytes([len(body)]) + body
        if version == 5:
            subscribe, publish = b"\x82\x09\0\1\0\0\3a/b\2", b"\x32\x09\0\3a/b\0\2\0x"
        talk = connect + subscribe + publish + b"\xc0\0\x40\2\0\1"
        (corpus / "mqtt-packets" / str(version)).write_bytes(b"\0" + talk)
        (corpus / "mqtt-session" / str(version)).write_bytes(talk + b"\xff\xfe\xfd" + talk)
    position = b'{"lat":47.1,"lon":9.5,"time":1761994805000,"accuracy":5,"id":"a-long-enough-id"}'
    owntracks = (
        b'{"_type":"location","lat":47.1,"lon":9.5,"tst":1761994805,"acc":5,"vel":7,"t":"u"}'
    )
    for kind, text in (("position", position), ("owntracks", owntracks)):
        (corpus / "fixes" / kind).write_bytes(text)
        for number in range(11):
            (corpus / "formats" / f"{kind}-{number}").write_bytes(bytes([number]) + text)
    (corpus / "fixes" / "several").write_bytes(b"[" + position + b"," + position + b"]")
    head = b"POST /v1/positions?u=a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
    (corpus / "http-heads" / "post").write_bytes(head)


def seed_schemas(corpus: Path) -> None:
    """Write a schema of each type, the same twice, and values of some."""
    texts = (
        b'{"type":"record","name":"R","fields":[{"name":"a","type":["null","R"],"default":null}]}',
        b'syntax="proto3"; import "google/protobuf/any.proto"; message M { map<string,M> m = 1; '
        b"oneof o { int32 a = 2 [deprecated=true]; } reserved 5 to max; enum E { Z = 0; } }",
        b'{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"string"},{"allOf":[{}]}]}}}',
    )
    for kind, text in enumerate(texts):
        (corpus / "schemas" / str(kind)).write_bytes(bytes([kind]) + text + b"\0" + text)
        (corpus / "schema-values" / str(kind)).write_bytes(bytes([kind]) + b"\0\x0a\2\x0a\0")
    converted = (
        b'\2syntax="proto3"; import "google/protobuf/timestamp.proto"; message M { enum E {Z = 0;} '
        b"map<string,int64> m = 1; oneof o { E e = 2; bytes b = 3; } repeated uint32 r = 4; "
        b"google.protobuf.Timestamp t = 5; message N { double d = 1; } repeated N n = 6; }"
        b"\0\0\x0a\5\x0a\1a\x10\5\x10\1\x2a\2\x08\1",
        b'\1{"type":"object","properties":{"a":{"oneOf":[{"type":"null"},{"type":"integer",'
        b'"connect.type":"int8"}]},"b":{"type":"array","items":{"$ref":"#/$defs/p"}},"c":'
        b'{"anyOf":[{"type":"string"},{"enum":["x"]},{"type":"number"}]}},"$defs":{"p":'
        b'{"type":"object","connect.type":"map","additionalProperties":{"type":"boolean"}}}}'
        b'\0{"a":5,"b":[{"k":true}],"c":1.5}',
    )
    for kind, text in enumerate(converted):
        (corpus / "converters" / str(kind)).write_bytes(text)


def fuzz(folder: Path, target: str, seconds: int) -> tuple[int, int, str]:
    """Fuzz one target; return exit status, executions, and the coverage it reached."""
    origin = importlib.util.find_spec("atheris")
    assert origin is not None
    assert origin.origin is not None
    runtime = Path(origin.origin).parents[1] / "asan_with_fuzzer.so"
    environment = os.environ | {
        "LD_PRELOAD": str(runtime),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONPATH": str(folder),
    }
    program = next(name for name, targets in PROGRAMS.items() if target in targets)
    command = [
        sys.executable, str(ROOT / "tests/fuzz" / program), target,
        str(folder / "corpus" / target), f"-max_total_time={seconds}", "-rss_limit_mb=2048",
        # A large allocation caused by a length field is a finding: inputs are at most 4 KiB.
        "-malloc_limit_mb=64",
        "-max_len=4096", "-timeout=10", "-print_final_stats=1",
        f"-artifact_prefix={folder}/{target}-",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    match = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    if done.returncode != 0:
        print(done.stderr[-4000:], file=sys.stderr)
    covered = re.findall(r"cov: (\d+) ft: (\d+)", done.stderr)
    coverage = f"{covered[-1][0]} edges, {covered[-1][1]} features" if covered else "no coverage"
    return done.returncode, int(match[1]) if match else 0, coverage


def main() -> int:
    """Build, fuzz, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default 60)")
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: all")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz")
    arguments = parser.parse_args()
    clang = shutil.which("clang") or shutil.which("clang-14")
    if clang is None or importlib.util.find_spec("atheris") is None:
        print(
            "fuzzing needs clang (apt-get install clang) and atheris (pip install -e .[fuzz])",
            file=sys.stderr,
        )
        return 1
    sys.path.insert(0, str(ROOT))
    seed(arguments.folder / "corpus")
    build(arguments.folder, clang)
    failed = False
    for target in arguments.target or TARGETS:
        status, executions, coverage = fuzz(arguments.folder, target, arguments.seconds)
        failed = failed or status != 0
        verdict = "no finding" if status == 0 else f"FAILED, see {arguments.folder}/{target}-*"
        print(
            f"{target}: {executions:,} executions in {arguments.seconds} s, {coverage}, {verdict}",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
