"""When certificates are valid, and what is said of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from tests.certificates import of_version_2
from waylog.network.tls.certificate_dates import (
    WARN_AGAIN_S,
    CertificateDates,
    DateWarnings,
    file_stamp,
    read_dates,
)

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
NINETY_DAYS = CertificateDates(FIRST, FIRST + timedelta(days=90))
#: Made for six days, and renewed every few.
SHORT = CertificateDates(FIRST, FIRST + timedelta(days=6))
REFUSED = "; clients that verify it do not connect"


@pytest.mark.parametrize(
    ("dates", "days", "warning"),
    [
        (NINETY_DAYS, -1, f"the certificate is not valid before 2026-01-01 00:00 UTC{REFUSED}"),
        (NINETY_DAYS, 0, None),
        (NINETY_DAYS, 75, None),
        (NINETY_DAYS, 77, "the certificate expires on 2026-04-01 00:00 UTC; renew it before"),
        (NINETY_DAYS, 91, f"the certificate has expired on 2026-04-01 00:00 UTC{REFUSED}"),
        (SHORT, 1, None),
        (SHORT, 4, None),
        (SHORT, 5, "the certificate expires on 2026-01-07 00:00 UTC; renew it before"),
    ],
)
def test_dates_in_words(dates: CertificateDates, days: int, warning: str | None) -> None:
    assert dates.warning(FIRST + timedelta(days=days)) == warning


def test_a_certificate_that_expires_soon_is_no_trouble_yet() -> None:
    assert NINETY_DAYS.trouble(FIRST + timedelta(days=89)) is None


def test_the_same_is_said_once_a_day() -> None:
    warnings, end = DateWarnings(), NINETY_DAYS.not_after
    soon, late = end - timedelta(days=1), end + timedelta(days=1)
    assert warnings.due(NINETY_DAYS, FIRST, 0.0) is None
    assert warnings.due(NINETY_DAYS, soon, 1.0) is not None
    assert warnings.due(NINETY_DAYS, soon, WARN_AGAIN_S) is None
    assert warnings.due(NINETY_DAYS, soon, WARN_AGAIN_S + 1) is not None
    # Another thing is said at once: that it has expired, or of another certificate.
    assert warnings.due(NINETY_DAYS, late, WARN_AGAIN_S + 2) is not None
    assert warnings.due(SHORT, late, WARN_AGAIN_S + 3) is not None
    assert warnings.due(SHORT, late, WARN_AGAIN_S + 4) is None
    assert warnings.due(None, late, WARN_AGAIN_S + 5) is None
    assert warnings.due(SHORT, late, WARN_AGAIN_S + 6) is not None


def test_a_chain_is_valid_while_all_its_certificates_are(tmp_path: Path) -> None:
    path = tmp_path / "chain.pem"
    assert (read_dates(path), file_stamp(path)) == (None, None)
    path.write_text("-----BEGIN CERTIFICATE-----\n")
    assert read_dates(path) is None
    before = file_stamp(path)
    authority = trustme.CA()
    moments = [datetime(2026, month, 1) for month in (1, 9, 2, 8)]
    for number in (0, 2):
        issued = authority.issue_cert(
            "localhost", not_before=moments[number], not_after=moments[number + 1]
        )
        issued.cert_chain_pems[0].write_to_path(path, append=bool(number))
    assert read_dates(path) == CertificateDates(
        datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 8, 1, tzinfo=UTC)
    )
    assert file_stamp(path) != before


def test_a_certificate_of_an_older_version_has_no_dates_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "old.pem"
    trustme.CA().issue_cert("localhost").cert_chain_pems[0].write_to_path(path)
    assert read_dates(path) is not None
    assert read_dates(of_version_2(path)) is None
