"""The two ceremonies of Web Authentication, by py_webauthn: make a passkey, sign in with one.

It is a module of its own because the library costs 13 MiB and a sixth of a second: a gateway loads
it when somebody uses a passkey.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import webauthn
from webauthn.helpers import base64url_to_bytes, bytes_to_base64url, parse_client_data_json
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from gateway.factors.site import Site

#: What the library, or the look into an answer of any shape, raises.
_UNFIT = (WebAuthnException, ValueError, KeyError, TypeError)


class Unfit(Exception):
    """An answer that does not fit its question."""


class Made(NamedTuple):
    """A passkey that a browser has made."""

    id: str
    public_key: bytes
    sign_count: int


def creation_options(
    site: Site, user: str, user_id: bytes, challenge: bytes, known: Sequence[str]
) -> dict[str, Any]:
    """Return what a browser makes a passkey of, unless it has one of `known`."""
    options = webauthn.generate_registration_options(
        rp_id=site.rp_id,
        rp_name="Waylog",
        user_name=user,
        user_id=user_id,
        challenge=challenge,
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.REQUIRED,
            user_verification=UserVerificationRequirement.REQUIRED,
        ),
        exclude_credentials=[
            PublicKeyCredentialDescriptor(id=base64url_to_bytes(each)) for each in known
        ],
    )
    made: dict[str, Any] = json.loads(webauthn.options_to_json(options))
    return made


def request_options(site: Site, challenge: bytes) -> dict[str, Any]:
    """Return what a browser asks for any passkey of this site with: it names no user."""
    options = webauthn.generate_authentication_options(
        rp_id=site.rp_id,
        challenge=challenge,
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    made: dict[str, Any] = json.loads(webauthn.options_to_json(options))
    return made


def challenge_of(answer: dict[str, Any]) -> bytes:
    """Return the challenge that an answer says to answer. Raises Unfit."""
    try:
        data = base64url_to_bytes(str(answer["response"]["clientDataJSON"]))
        return parse_client_data_json(data).challenge
    except _UNFIT as error:
        raise Unfit from error


def id_of(answer: dict[str, Any]) -> str:
    """Return the id of the passkey that has answered, in its one spelling. Raises Unfit."""
    try:
        return bytes_to_base64url(base64url_to_bytes(str(answer["id"])))
    except _UNFIT as error:
        raise Unfit from error


def verified_creation(site: Site, challenge: bytes, answer: dict[str, Any]) -> Made:
    """Return the passkey that was made. Raises Unfit."""
    try:
        made = webauthn.verify_registration_response(
            credential=answer,
            expected_challenge=challenge,
            expected_rp_id=site.rp_id,
            expected_origin=site.origin,
            require_user_verification=True,
        )
    except _UNFIT as error:
        raise Unfit from error
    return Made(bytes_to_base64url(made.credential_id), made.credential_public_key, made.sign_count)


def verified_signature(
    site: Site, challenge: bytes, answer: dict[str, Any], public_key: bytes, sign_count: int
) -> int:
    """Return the passkey's new count of signatures. Raises Unfit.

    A count that has not grown is refused: there is a copy of the passkey.
    """
    try:
        signed = webauthn.verify_authentication_response(
            credential=answer,
            expected_challenge=challenge,
            expected_rp_id=site.rp_id,
            expected_origin=site.origin,
            credential_public_key=public_key,
            credential_current_sign_count=sign_count,
            require_user_verification=True,
        )
    except _UNFIT as error:
        raise Unfit from error
    return signed.new_sign_count
