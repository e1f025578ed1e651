"""schemathesis against a gateway by its own description of its interface.

    pip install schemathesis            # in an environment of its own
    python -m tests.gateway.openapi_fuzz --schemathesis ENV/bin/schemathesis --examples 25

Broker, geocoder and gateway are real; an administrator asks. It looks for server errors, and for
answers whose status, content type or body is not what the description says. Streams are left out:
they never end. Exit status that of schemathesis.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Final

from load_tests.benches.broker_processes import MeasuredBroker
from tests.consumers.running import Process
from tests.gateway.running import Gateway
from tests.ports import reserved_ports
from waylog.kafka.clients import ensure_topics

_CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
_ENDLESS: Final = ("/v1/stream", "/v1/ws", "/mqtt")


def main() -> int:
    """Run schemathesis and return its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schemathesis", default="schemathesis", metavar="PROGRAM")
    parser.add_argument("--examples", type=int, default=25, help="of each operation, at most")
    parser.add_argument("--phases", default="examples,coverage,fuzzing")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        MeasuredBroker("Waylog", Path(folder) / "broker") as broker,
    ):
        ensure_topics(broker.bootstrap_servers)
        geocoder = f"127.0.0.1:{reserved_ports(1)[0]}"
        geo = Process("geo", "serve", "--listen", geocoder)
        gateway = Gateway(Path(folder), broker.bootstrap_servers, "--geo-url", f"http://{geocoder}")
        admin = gateway.user("root", admin=True)
        login = b64encode(f"{admin.name}:{admin.token}".encode()).decode()
        words = [
            *(arguments.schemathesis, "run", f"{gateway.url}/openapi.json"),
            *("--header", f"Authorization: Basic {login}"),
            *("--checks", ",".join(_CHECKS), "--phases", arguments.phases),
            *("--max-examples", str(arguments.examples), "--request-timeout", "30"),
        ]
        for path in _ENDLESS:
            words += ["--exclude-path", path]
        try:
            return subprocess.run(words, cwd=folder, check=False).returncode
        finally:
            gateway.close()
            geo.stop()


if __name__ == "__main__":
    sys.exit(main())
