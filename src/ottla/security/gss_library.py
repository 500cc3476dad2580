"""Kerberos by the system's library, through the package gssapi: keys and tickets, and contexts made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from ottla.records.extras import require_extra
from ottla.security.errors import SecurityError
from ottla.security.kerberos import GssapiServer, KerberosLogin, ShortNames
from ottla.security.scram import SaslError

_KDC_UNREACHABLE: Final = 2529639068
"""KRB5_KDC_UNREACH, as an unsigned number."""


class KdcUnreachableError(SaslError):
    """No KDC answers; another attempt may help."""


def library() -> Any:
    """The package. Raises ImportError with the cure."""
    require_extra("SASL by GSSAPI (Kerberos)", "kerberos", "gssapi")
    import gssapi

    return gssapi


def _said(error: Any) -> str:
    """The library's reason in one line, of Kerberos itself where there is one."""
    found = error.get_all_statuses(error.min_code, False) if error.min_code else []
    return "; ".join(found or error.get_all_statuses(error.maj_code, True))


class KerberosKey:
    """A broker's key, by which it takes clients, and the rules for their names."""

    def __init__(self, login: KerberosLogin, rules: Sequence[str]) -> None:
        """Raises SecurityError where the key tab or a rule cannot be used, ImportError without the library."""
        gssapi = library()
        try:
            realm = str(gssapi.Name("x", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)).partition("@")[2]
        except gssapi.exceptions.GSSError:
            realm = ""  # krb5.conf names none
        self._names = ShortNames(rules, realm)
        try:
            self._credentials = gssapi.Credentials(
                name=gssapi.Name(login.principal, gssapi.NameType.kerberos_principal),
                usage="accept",
                mechs=[gssapi.MechType.kerberos],
                store={"keytab": login.key_tab},
            )
        except gssapi.exceptions.GSSError as error:
            raise SecurityError(
                f"the key of {login.principal} cannot be read from keyTab {login.key_tab}: {_said(error)}"
            ) from None

    def exchange(self) -> GssapiServer:
        """The server's side of a new exchange."""
        return GssapiServer(_Context(library(), creds=self._credentials, usage="accept"), self._names)


def initiate(login: KerberosLogin, host: str) -> _Context:
    """A client's context towards a broker. Reads files. Raises SaslError."""
    gssapi = library()
    store = {} if login.ticket_cache is None else {"ccache": login.ticket_cache}
    if login.key_tab is not None:
        # The library gets tickets by the key when there are none, and new ones before they expire.
        kept = hashlib.sha256(f"{login.principal}\0{login.key_tab}".encode()).hexdigest()[:32]
        store = {"client_keytab": login.key_tab, "ccache": f"MEMORY:ottla-{kept}"}
    try:
        credentials = gssapi.Credentials(
            name=gssapi.Name(login.principal, gssapi.NameType.kerberos_principal) if login.principal else None,
            usage="initiate",
            mechs=[gssapi.MechType.kerberos],
            store=store or None,
        )
        return _Context(
            gssapi,
            name=gssapi.Name(f"{login.service_name}@{host}", gssapi.NameType.hostbased_service),
            creds=credentials,
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
        )
    except gssapi.exceptions.GSSError as error:
        raise _failed(error) from None


def _failed(error: Any) -> SaslError:
    kind = KdcUnreachableError if error.min_code & 0xFFFFFFFF == _KDC_UNREACHABLE else SaslError
    return kind(f"Kerberos: {_said(error)}")


class _Context:
    """A security context with one kind of error."""

    def __init__(self, gssapi: Any, **arguments: Any) -> None:
        self._errors = gssapi.exceptions.GSSError
        self._context = gssapi.SecurityContext(**arguments)

    @property
    def is_complete(self) -> bool:
        """Whether both sides know each other."""
        return bool(self._context.complete)

    @property
    def peer(self) -> str:
        """The principal of the client."""
        return str(self._context.initiator_name)

    def step(self, token: bytes) -> bytes:
        """The next token, empty for none. Raises SaslError."""
        try:
            return self._context.step(token) or b""
        except self._errors as error:
            raise _failed(error) from None

    def wrap(self, message: bytes) -> bytes:
        """A message with its signature. Raises SaslError."""
        try:
            return bytes(self._context.wrap(message, False).message)
        except self._errors as error:
            raise _failed(error) from None

    def unwrap(self, token: bytes) -> bytes:
        """The message of `wrap`. Raises SaslError."""
        try:
            return bytes(self._context.unwrap(token).message)
        except self._errors as error:
            raise _failed(error) from None
