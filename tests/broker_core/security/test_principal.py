"""Mapping of certificate names to principals."""

from __future__ import annotations

import pytest

from broker_core.security.principal import (
    ANONYMOUS,
    Principal,
    PrincipalMapper,
    distinguished_name,
)
from waylog.config import ConfigError

CERTIFICATE = {
    "subject": (
        (("countryName", "AT"),),
        (("organizationName", "Waylog, Ltd"),),
        (("organizationalUnitName", "fleet"),),
        (("commonName", "Van-7"),),
    )
}


def test_a_distinguished_name_is_written_last_part_first() -> None:
    assert distinguished_name(CERTIFICATE) == "CN=Van-7,OU=fleet,O=Waylog\\, Ltd,C=AT"
    assert distinguished_name({}) == ""


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=Van-7,OU=fleet,C=AT"),
        ("RULE:^CN=(.*?),OU=fleet.*$/$1/", "Van-7"),
        ("RULE:^CN=(.*?),.*$/$1@fleet/L", "van-7@fleet"),
        ("RULE:^CN=(.*?),.*$/$1/U", "VAN-7"),
        ("RULE:^CN=(.*?),OU=other.*$/$1/, RULE:.*C=(..)$/$1/L, DEFAULT", "at"),
        ("RULE:^UID=(.*)$/$1/,DEFAULT", "CN=Van-7,OU=fleet,C=AT"),
    ],
)
def test_the_first_rule_that_fits_makes_the_name(rules: str, name: str) -> None:
    mapper = PrincipalMapper(rules)
    assert mapper.principal("CN=Van-7,OU=fleet,C=AT") == Principal("User", name)


def test_a_name_that_no_rule_fits_is_nobody() -> None:
    assert PrincipalMapper("RULE:^UID=(.*)$/$1/").principal("CN=x") == ANONYMOUS


@pytest.mark.parametrize("rules", ["RULE:a/b", "NOTHING", "RULE:(/x/"])
def test_a_rule_that_cannot_be_read_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"mapping\.rules"):
        PrincipalMapper(rules)
