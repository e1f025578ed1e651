"""The numbers for Cython are those of packets.py."""

from __future__ import annotations

import re
from pathlib import Path

import gateway.mqtt.packets
from gateway.mqtt.packets.packets import PacketType, PropertyId, ReasonCode

NUMBERS = Path(gateway.mqtt.packets.__file__).with_name("packet_numbers.pxd")


def numbers_of(heading: str) -> dict[str, int]:
    [section] = re.findall(
        rf"^    # {heading}\.\n((?:    \w.*\n)+)", NUMBERS.read_text(), re.MULTILINE
    )
    return {name: int(number, 0) for name, number in re.findall(r"(\w+) = (\w+)", section)}


def test_all_packet_types_have_their_number() -> None:
    assert numbers_of("Packet types") == {each.name: each.value for each in PacketType}


def test_reason_codes_have_their_number() -> None:
    numbers = numbers_of("Reason codes")
    assert numbers
    assert numbers == {name: ReasonCode[name].value for name in numbers}


def test_properties_have_their_number() -> None:
    numbers = numbers_of("Property identifiers")
    assert numbers
    assert numbers == {name: PropertyId[name].value for name in numbers}


def test_every_section_is_compared() -> None:
    headings = re.findall(r"^    # (.*)\.$", NUMBERS.read_text(), re.MULTILINE)
    assert headings == ["Packet types", "Reason codes", "Property identifiers"]
