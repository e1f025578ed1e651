"""The list of Cython extensions; everything else about the build is in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

# Listed by hand: a glob would also compile Cython's own files inside .venv.
EXTENSIONS = [
    "broker_core/protocol/batch_builder.pyx",
    "broker_core/protocol/batch_header.pyx",
    "broker_core/protocol/crc32c.pyx",
    "broker_core/protocol/decoder.pyx",
    "broker_core/protocol/encoder.pyx",
    "broker_core/protocol/plan.pyx",
    "broker_core/protocol/produced_batches.pyx",
    "broker_core/protocol/record_reader.pyx",
    "broker_core/protocol/stored_batches.pyx",
    "broker_core/server/coordination/string_hash.pyx",
    "gateway/fixes/device_times.pyx",
    "gateway/views/fix_view.pyx",
    "gateway/fixes/plain_positions.pyx",
    "gateway/fixes/fix_readers.pyx",
    "gateway/fixes/fix_record.pyx",
    "gateway/fixes/fix_route.pyx",
    "gateway/fixes/json_scanner.pyx",
    "gateway/fixes/record_head.pyx",
    "gateway/limits/party_turns.pyx",
    "gateway/mqtt/publishing/topic_route.pyx",
    "gateway/fixes/known_fixes.pyx",
    "gateway/mqtt/packets/decoder.pyx",
    "gateway/mqtt/packets/encoder.pyx",
    "gateway/mqtt/packets/packet_fields.pyx",
    "gateway/mqtt/packets/packet_properties.pyx",
    "gateway/mqtt/sessions/hub.pyx",
    "gateway/mqtt/sessions/link.pyx",
    "gateway/mqtt/sessions/memory_pool.pyx",
    "gateway/mqtt/sessions/user_turns.pyx",
    "gateway/mqtt/packets/message.pyx",
    "gateway/mqtt/sessions/session.pyx",
    "gateway/mqtt/sessions/shell.pyx",
    "gateway/mqtt/sessions/waiting_publishes.pyx",
    "gateway/mqtt/packets/topics.pyx",
    "gateway/fixes/receipts.pyx",
    "gateway/fixes/siphash.pyx",
    "gateway/fixes/stored_keys.pyx",
    "geoservice/index/address_json.pyx",
    "geoservice/index/index.pyx",
    "geoservice/index/street_check.pyx",
    "geoservice/index/streets.pyx",
    "load_tests/fleet.pyx",
    "load_tests/histogram.pyx",
    "spark/places/stay_points.pyx",
    "waylog/kafka/fetched_records.pyx",
    "waylog/kafka/record_batch.pyx",
]

# Built by the set-up, not kept in git: without them a platform does not start, or has no map.
WORLD = ["geoservice/world/world.bin", "gateway/web/vendor", "gateway/web/world"]


class CompleteWheel(bdist_wheel):
    """A command that refuses to make a wheel from which no platform could be started."""

    def run(self) -> None:
        """Make the wheel; raises SystemExit that names what is missing."""
        missing = [path for path in WORLD if not Path(path).exists()]
        if missing:
            raise SystemExit(f"missing: {', '.join(missing)}; `make setup` builds them first")
        if not self.distribution.has_ext_modules():
            raise SystemExit("WAYLOG_SKIP_EXTENSIONS is for `pip install -e`, not for wheels")
        super().run()


# The set-up installs the packages first and compiles afterwards, so that a change to one .pyx does
# not reinstall everything.
setup(
    cmdclass={"bdist_wheel": CompleteWheel},
    ext_modules=[]
    if os.environ.get("WAYLOG_SKIP_EXTENSIONS")
    else cythonize(
        [
            Extension(
                path.removesuffix(".pyx").replace("/", "."),
                [path],
                extra_compile_args=["-O3", "-g0"],
            )
            for path in EXTENSIONS
        ],
        build_dir="build/cython",
        compiler_directives={"language_level": 3},
    ),
)
