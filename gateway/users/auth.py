"""Authentication: verdicts on names, passwords and tokens.

Verifying costs a database read (token) or tens of milliseconds and 19 MiB (argon2id password), so
verdicts are cached. The cache is bounded, and its verdicts are checked again as soon as the user
database changes: a revocation takes effect after at most RECHECK_S, in every gateway process.

A wrong password costs the same whether or not the user exists.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from argon2.exceptions import InvalidHashError, VerificationError

from gateway.limits.failed_logins import FailedLogins
from gateway.limits.password_queue import PasswordQueue, QueueFull
from gateway.shares.share import Share
from gateway.shares.share_table import share_hash
from gateway.users.database import DEVICE_NAME, TOKEN_PREFIX, Credential, UserStore, password_hasher
from gateway.users.rights import USUAL_RIGHTS, Rights

logger = logging.getLogger(__name__)

RECHECK_S: Final = 1.0
VERDICTS_MAX: Final = 20_000
VERDICTS_OF_USER_MAX: Final = 1_000
REFUSALS_MAX: Final = 2_000
#: Seconds that a refusal is cached, unless the database changes. A phone with an old password
#: repeats it every few seconds, which is not guessing.
REFUSAL_S: Final = 600.0
_SECRET_CHARACTERS_MAX: Final = 512

ANONYMOUS: Final = "anonymous"


class AuthenticationUnavailable(Exception):
    """No verdict is possible now (busy, database unavailable): a transient state, not a refusal."""


@dataclass(frozen=True)
class Identity:
    """The identity of a client, with its rights at the time of authentication."""

    user: str
    device: str | None = None  # the token is valid for this device of the user only
    admin: bool = False
    rights: Rights = USUAL_RIGHTS
    #: Hash of the credential (gateway.users.database.Credential.hash); None if none was needed.
    credential: str | None = field(default=None, repr=False, compare=False)
    #: Set for somebody who has only the link of a share; `user` is then nobody's name.
    share: Share | None = None

    @property
    def account(self) -> str:
        """Return the user whose rights decide: of a share its owner."""
        return self.user if self.share is None else self.share.user


@dataclass
class _Verdict:
    """An acceptance, valid for as long as its credential is in the database."""

    identity: Identity
    credential: Credential
    data_version: int
    alone: bool = False  # a password that nothing else came with


class Authenticator:
    """Authenticates clients; used on one event loop."""

    def __init__(
        self,
        store: UserStore,
        *,
        open_mode: bool = False,
        clock: Callable[[], float] = time.monotonic,
        failed_logins: FailedLogins | None = None,
    ) -> None:
        self.open_mode = open_mode
        self._failed_logins = FailedLogins() if failed_logins is None else failed_logins
        self._store = store
        self._clock = clock
        self._verdicts: OrderedDict[bytes, _Verdict] = OrderedDict()
        # Keys per user, oldest first: many credentials of one user do not evict those of others.
        self._keys_of: dict[str, OrderedDict[bytes, None]] = {}
        # Expiry time and version of the database. Separate from the verdicts, so that guesses do
        # not evict valid credentials.
        self._refusals: OrderedDict[bytes, tuple[float, int]] = OrderedDict()
        # Plain passwords are not kept in memory, not even as keys of this cache.
        self._cache_key = os.urandom(32)
        self._data_version = store.data_version()
        self._version_checked = clock()
        self._verifying: dict[bytes, asyncio.Future[Identity | None]] = {}
        self._passwords = PasswordQueue(_password_fits)
        # Verified in place of the hash of a user that does not exist.
        self._nobodys_hash = password_hasher.hash(os.urandom(16).hex())

    def recheck(self) -> None:
        """Check all cached verdicts again, because rights have changed."""
        self._version_checked = float("-inf")

    def close(self) -> None:
        """Stop verifying."""
        self._passwords.close()

    async def authenticate(
        self, user: str, password: str, address: str = "", *, first_factor: bool = False
    ) -> Identity | None:
        """Return the identity of a user by password or by one of its tokens; None if refused.

        `address` is the client's: addresses take turns and have limits on guesses. In open mode
        every name is accepted. The password of a user with a second factor is refused, unless the
        caller asks for that as well (`first_factor`). Raises AuthenticationUnavailable,
        TooManyFailedLogins.
        """
        if self.open_mode:
            name = user or ANONYMOUS
            return Identity(name) if DEVICE_NAME.fullmatch(name) else None
        if not _may_be_known(user) or not _may_be_known(password):
            return None
        return await self._identity(user, password, address, first_factor)

    async def authenticate_certificate(self, name: str) -> Identity | None:
        """Return the identity of a verified certificate's common name, `user` or `user/device`.

        None for a user that is not, or no longer, in the database. Raises
        AuthenticationUnavailable.
        """
        user, _, device = name.partition("/")
        if not is_utf8(name):
            return None
        try:
            if not self.open_mode and not self._store.exists(user):
                return None
            rights = USUAL_RIGHTS if self.open_mode else self._store.rights.of(user)
        except sqlite3.Error as error:
            raise AuthenticationUnavailable("the user database cannot be read") from error
        if not DEVICE_NAME.fullmatch(user):
            return None
        return Identity(user, device or None, rights=rights)

    async def authenticate_token(self, token: str, address: str = "") -> Identity | None:
        """Return the identity that a token belongs to; None if refused.

        Raises AuthenticationUnavailable, TooManyFailedLogins.
        """
        if not _may_be_known(token):
            return None
        identity = await self._identity(None, token, address)
        if identity is None and self.open_mode:
            return Identity(ANONYMOUS)
        return identity

    def authenticate_session(self, secret: str) -> Identity | None:
        """Return the identity of a browser's session; None if it has ended.

        Raises AuthenticationUnavailable.
        """
        if not _may_be_known(secret):
            return None
        try:
            credential = self._store.credential_of_session(secret)
        except sqlite3.Error as error:
            logger.error("the user database cannot be read: %s", error)
            raise AuthenticationUnavailable("the user database cannot be read") from error
        return None if credential is None else _identity_of(credential)

    def authenticate_share(self, token: str) -> Identity | None:
        """Return the identity of whoever has this token of a share; None if it is not valid now.

        Raises AuthenticationUnavailable.
        """
        if self.open_mode or not _may_be_known(token):
            return None
        try:
            share = self._store.shares.find(share_hash(token))
        except sqlite3.Error as error:
            logger.error("the user database cannot be read: %s", error)
            raise AuthenticationUnavailable("the user database cannot be read") from error
        # No user has such a name. Viewers of one share have one user's share of everything.
        return None if share is None else Identity(f"share {share.id}", share=share)

    def key_of(self, user: str | None, secret: str) -> bytes:
        """Return the key under which the verdict on these credentials is cached."""
        text = secret if user is None else f"{user}\0{secret}"
        return blake2b(
            text.encode("utf-8", "surrogatepass"), key=self._cache_key, digest_size=16
        ).digest()

    def recall(self, key: bytes) -> Identity | None:
        """Return the identity of a cached, still valid verdict; None if a new one is needed."""
        try:
            self._notice_changes()
            verdict = self._kept(key)
        except sqlite3.Error:
            return None
        return None if verdict is None else verdict.identity

    async def _identity(
        self, user: str | None, secret: str, address: str = "", first_factor: bool = False
    ) -> Identity | None:
        # Verdicts on a first factor are for those who ask for the second one.
        key = self.key_of(f"\0first factor of {user}" if first_factor else user, secret)
        try:
            self._notice_changes()
            verdict = self._kept(key)
            if verdict is not None:
                return verdict.identity
            if self._refused(key):
                # The same wrong credentials again are not a new guess, and are not counted.
                if not self.open_mode:
                    self._failed_logins.require_room(address)
                return None
            return await self._verify(key, user, secret, address, first_factor)
        except sqlite3.Error as error:
            logger.error("the user database cannot be read: %s", error)
            raise AuthenticationUnavailable("the user database cannot be read") from error

    def _notice_changes(self) -> None:
        now = self._clock()
        if now - self._version_checked >= RECHECK_S:
            self._version_checked = now
            self._data_version = self._store.data_version()

    def _kept(self, key: bytes) -> _Verdict | None:
        verdict = self._verdicts.get(key)
        if verdict is None:
            return None
        if verdict.data_version != self._data_version:
            # The database has changed. A verdict stays valid if its credential is still there,
            # unchanged, which needs no new argon2 computation.
            if not self._store.holds(verdict.credential) or self._needs_more(verdict):
                self._forget(key)
                return None
            verdict.data_version = self._data_version
        self._verdicts.move_to_end(key)
        return verdict

    def _needs_more(self, verdict: _Verdict) -> bool:
        """Tell whether a password is no longer enough."""
        return verdict.alone and self._store.second_factors.is_on(verdict.identity.user)

    def _forget(self, key: bytes) -> None:
        user = self._verdicts.pop(key).identity.user
        own = self._keys_of[user]
        del own[key]
        if not own:
            del self._keys_of[user]

    def _refused(self, key: bytes) -> bool:
        until, data_version = self._refusals.get(key, (0.0, 0))
        if self._clock() < until and data_version == self._data_version:
            return True
        self._refusals.pop(key, None)
        return False

    async def _verify(
        self, key: bytes, user: str | None, secret: str, address: str, first_factor: bool
    ) -> Identity | None:
        # Read before the credential: a change during the verification must outdate the verdict.
        data_version = self._data_version
        if user is None or secret.startswith(TOKEN_PREFIX):
            identity = self._keep(key, self._by_token(user, secret), data_version)
            if identity is None and not self.open_mode:
                self._failed_logins.wrong(address)
            return identity
        verifying = self._verifying.get(key)
        if verifying is None:
            verifying = asyncio.ensure_future(
                self._by_password(key, user, secret, address, data_version, first_factor)
            )
            self._verifying[key] = verifying
            verifying.add_done_callback(lambda _: self._verifying.pop(key, None))
        return await asyncio.shield(verifying)

    def _by_token(self, user: str | None, token: str) -> Credential | None:
        credential = self._store.credential_of_token(token)
        if credential is None:
            return None
        if user is not None and not hmac.compare_digest(
            user.encode("utf-8", "surrogatepass"), credential.user.encode()
        ):
            return None
        return credential

    async def _by_password(
        self,
        key: bytes,
        user: str,
        password: str,
        address: str,
        data_version: int,
        first_factor: bool,
    ) -> Identity | None:
        self._failed_logins.begin(address, user)
        credential = self._store.password_of_user(user)
        hashed = self._nobodys_hash if credential is None else credential.hash
        known = user if credential is not None else ""
        try:
            good = await self._passwords.verify(address, known, hashed, password)
        except QueueFull as error:
            self._failed_logins.unverified(address, user)
            raise AuthenticationUnavailable("too many passwords wait to be verified") from error
        if not good or credential is None:
            return self._keep(key, None, data_version)
        alone = not first_factor
        if alone and self._store.second_factors.is_on(user):
            # Counted as a wrong one: the answer must not tell that it is right.
            return self._keep(key, None, data_version)
        self._failed_logins.right(address, user)
        return self._keep(key, credential, data_version, alone=alone)

    def _keep(
        self,
        key: bytes,
        credential: Credential | None,
        data_version: int,
        *,
        alone: bool = False,
    ) -> Identity | None:
        if credential is None:
            self._refusals[key] = (self._clock() + REFUSAL_S, data_version)
            if len(self._refusals) > REFUSALS_MAX:
                self._refusals.popitem(last=False)
            return None
        identity = _identity_of(credential)
        own = self._keys_of.setdefault(identity.user, OrderedDict())
        own[key] = None
        self._verdicts[key] = _Verdict(identity, credential, data_version, alone)
        if len(own) > VERDICTS_OF_USER_MAX:
            self._forget(next(iter(own)))
        if len(self._verdicts) > VERDICTS_MAX:
            self._forget(next(iter(self._verdicts)))
        return identity


def _identity_of(credential: Credential) -> Identity:
    return Identity(
        credential.user, credential.device, credential.admin, credential.rights, credential.hash
    )


def _may_be_known(text: str) -> bool:
    """Tell whether a name or secret is possible at all: not too long, no NUL, and UTF-8."""
    return len(text) <= _SECRET_CHARACTERS_MAX and "\0" not in text and is_utf8(text)


def is_utf8(text: str) -> bool:
    """Tell whether text from the network was UTF-8: invalid bytes became lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _password_fits(hashed: str, password: str) -> bool:
    try:
        return password_hasher.verify(hashed, password)
    except (VerificationError, InvalidHashError, UnicodeEncodeError):
        return False
