"""`waylog streams geofences`: adds, lists, imports and removes geofences."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from waylog.cli import EXIT_DONE, CommandError
from waylog.config import DEFAULT_BOOTSTRAP_SERVERS, ConfigError, check_bootstrap_servers
from waylog.console.common import add_json, print_rows

if TYPE_CHECKING:
    from waylog.geofences.definition import Geofence

_EXAMPLES: Final = """examples:
  waylog streams geofences add home --user ann --circle 47.14,9.52,150 --dwell 600
  waylog streams geofences add park --everybody --polygon park.geojson
  waylog streams geofences add route --user ann --corridor route.geojson --width 60 --device car
  waylog streams geofences import fences.geojson --user ann
  waylog streams geofences list --user ann
  waylog streams geofences remove home --user ann
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog streams geofences`."""
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="geofences", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="add a geofence, or replace the one with the name")
    listing = actions.add_parser("list", help="list geofences")
    remove = actions.add_parser("remove", help="remove geofences")
    importing = actions.add_parser("import", help="add all features of a GeoJSON file")
    for each in (add, remove, importing, listing):
        each.add_argument(
            "--bootstrap-servers",
            default=DEFAULT_BOOTSTRAP_SERVERS,
            metavar="LIST",
            help="Kafka brokers (default %(default)s)",
        )
        owner = each.add_mutually_exclusive_group(required=each is not listing)
        owner.add_argument("--user", metavar="U", help="for the devices of this user")
        owner.add_argument("--everybody", action="store_true", help="for the devices of all users")
    add.add_argument("name", metavar="NAME")
    shape = add.add_mutually_exclusive_group(required=True)
    shape.add_argument("--circle", metavar="LAT,LON,RADIUS", help="degrees, and metres")
    shape.add_argument("--polygon", type=Path, metavar="FILE", help="GeoJSON, `-` for stdin")
    shape.add_argument("--corridor", type=Path, metavar="FILE", help="GeoJSON of a line")
    add.add_argument("--width", type=float, metavar="M", help="of the corridor, in metres")
    for each in (add, importing):
        each.add_argument(
            "--device",
            dest="devices",
            action="append",
            metavar="DEVICE",
            help="only for this device of the user (of all: user/device); several times",
        )
        each.add_argument(
            "--dwell", type=float, metavar="S", help="seconds inside for the event dwell"
        )
        each.add_argument(
            "--minimum", type=float, metavar="S", help="seconds inside before there is an event"
        )
    importing.add_argument("file", type=Path, metavar="FILE.geojson")
    importing.add_argument("--dry-run", action="store_true", help="only check the file")
    remove.add_argument("names", nargs="+", metavar="NAME")
    add_json(listing)


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked for; raises CommandError, ConfigError."""
    from waylog.geofences.definition import InvalidGeofence
    from waylog.kafka.clients import LogUnreachable

    check_bootstrap_servers(arguments.bootstrap_servers)
    try:
        return _ACTIONS[arguments.geofences](arguments)
    except InvalidGeofence as error:
        raise CommandError(str(error)) from None
    except LogUnreachable as error:
        raise CommandError(str(error)) from None


def _add(arguments: argparse.Namespace) -> int:
    _write(arguments, {arguments.name: _added(arguments)})
    print(f"geofence {arguments.name} is added")
    return EXIT_DONE


def _added(arguments: argparse.Namespace) -> Geofence:
    import msgspec

    from waylog.geofences.definition import Circle, decode_geofence
    from waylog.geofences.geojson import read_features

    more = _more(arguments)
    if arguments.circle is not None:
        if arguments.width is not None:
            raise ConfigError("--width is for --corridor")
        lat, lon, radius = _numbers(arguments.circle)
        shape = {"circle": Circle(lat, lon, radius)}
        return decode_geofence(msgspec.json.encode(more | shape))
    path = arguments.polygon or arguments.corridor
    if (arguments.corridor is None) != (arguments.width is None):
        raise ConfigError("--corridor and --width go together")
    if arguments.width is not None:
        more["width"] = arguments.width
    text = _as_feature(_read(path), arguments.name)
    [fence] = read_features(text, more).values()
    if (fence.corridor is None) == (arguments.corridor is not None):
        wanted = "a line" if arguments.corridor is not None else "a polygon"
        raise CommandError(f"{path}: {wanted} is expected")
    return fence


def _import(arguments: argparse.Namespace) -> int:
    from waylog.geofences.definition import InvalidGeofence
    from waylog.geofences.geojson import read_features

    try:
        fences = read_features(_read(arguments.file), _more(arguments))
    except InvalidGeofence as error:
        raise CommandError(f"{arguments.file}: {error}") from None
    if not arguments.dry_run:
        _write(arguments, fences)
    print(f"{len(fences)} geofences are {'right' if arguments.dry_run else 'added'}")
    return EXIT_DONE


def _list(arguments: argparse.Namespace) -> int:
    from consumers.streams.geofences.fence_topic import read_definitions

    rows = []
    wanted = _owner(arguments) if arguments.user or arguments.everybody else None
    for key, value in sorted(read_definitions(arguments.bootstrap_servers).items()):
        owner, _, name = key.partition("/")
        if wanted in (None, owner):
            rows.append({"owner": owner, "name": name, **_row(value)})
    print_rows(rows, as_json=arguments.json)
    return EXIT_DONE


def _row(value: bytes) -> dict[str, Any]:
    from waylog.geofences.definition import InvalidGeofence, decode_geofence
    from waylog.geofences.shape import shape_of

    row = {"title": "", "shape": "", "devices": "", "dwell": "", "minimum": ""}
    try:
        fence = decode_geofence(value)
        shape_of(fence)
    except InvalidGeofence as error:
        return row | {"shape": f"wrong: {error}"}
    title = "" if fence.title is None else fence.title
    if fence.circle is not None:
        circle = fence.circle
        shape = f"circle {circle.lat:g},{circle.lon:g} {circle.radius:g} m"
    elif fence.corridor is not None:
        shape = f"corridor {fence.corridor.width:g} m"
    else:
        shape = "polygon"
    devices = "" if fence.devices is None else ",".join(fence.devices)
    times = {
        name: f"{seconds:g} s" if seconds else ""
        for name, seconds in (("dwell", fence.dwell), ("minimum", fence.minimum))
    }
    return {"title": title, "shape": shape, "devices": devices, **times}


def _remove(arguments: argparse.Namespace) -> int:
    from consumers.streams.geofences.fence_topic import read_definitions, write_fences

    owner = _owner(arguments)
    known = read_definitions(arguments.bootstrap_servers)
    missing = [name for name in arguments.names if f"{owner}/{name}" not in known]
    if missing:
        raise CommandError(f"there is no geofence {', '.join(missing)} of this owner")
    keys = {f"{owner}/{name}": None for name in arguments.names}
    write_fences(arguments.bootstrap_servers, keys)
    print(f"{len(keys)} geofences are removed")
    return EXIT_DONE


_ACTIONS: Final = {"add": _add, "import": _import, "list": _list, "remove": _remove}


def _owner(arguments: argparse.Namespace) -> str:
    from waylog.messages import EVERYBODY

    return EVERYBODY if arguments.everybody else str(arguments.user)


def _more(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the members that options give."""
    given = {name: getattr(arguments, name) for name in ("devices", "dwell", "minimum")}
    return {name: value for name, value in given.items() if value is not None}


def _write(arguments: argparse.Namespace, fences: dict[str, Geofence]) -> None:
    from consumers.streams.geofences.fence_topic import write_fences
    from waylog.geofences.definition import check_key

    _check(fences)
    owner = _owner(arguments)
    write_fences(
        arguments.bootstrap_servers,
        {check_key(owner, name): fence for name, fence in fences.items()},
    )


def _check(fences: dict[str, Geofence]) -> None:
    """Raise InvalidGeofence for a shape that cannot be used."""
    from waylog.geofences.definition import InvalidGeofence
    from waylog.geofences.shape import shape_of

    for name, fence in fences.items():
        try:
            shape_of(fence)
        except InvalidGeofence as error:
            raise InvalidGeofence(f"geofence {name}: {error}") from None


def _numbers(text: str) -> Sequence[float]:
    try:
        lat, lon, radius = (float(word) for word in text.split(","))
    except ValueError:
        raise ConfigError(f"--circle {text}: LAT,LON,RADIUS is expected") from None
    return lat, lon, radius


def _as_feature(text: bytes, name: str) -> bytes:
    """Return a geometry, or a feature, as a feature that has the name."""
    import msgspec

    from waylog.geofences.definition import InvalidGeofence
    from waylog.malformed import MALFORMED

    try:
        document = msgspec.json.decode(text)
    except MALFORMED as error:
        raise InvalidGeofence(f"the file is no JSON: {error}") from None
    if isinstance(document, dict) and document.get("type") == "FeatureCollection":
        features = document.get("features")
        if not isinstance(features, list) or len(features) != 1:
            raise InvalidGeofence("one feature is expected; `import` takes more")
        document = features[0]
    if isinstance(document, dict) and document.get("type") == "Feature":
        document = document.get("geometry")
    feature = {"type": "Feature", "geometry": document, "properties": {"name": name}}
    return msgspec.json.encode(feature)


def _read(path: Path) -> bytes:
    import sys

    return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
