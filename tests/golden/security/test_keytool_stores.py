"""Stores that Java's keytool made. `OTTLA_RECORD=1` makes them again.

`key.jks` has a key with a chain of two certificates, and its authority; `two_passwords.jks` a key whose password is not
the store's; `trust.jks` two authorities; `key.p12` and `trust.p12` have the same as PKCS12.
"""

from __future__ import annotations

import os
import ssl
import subprocess
from pathlib import Path

import pytest

from ottla.security.contexts import client_context, server_context
from ottla.security.errors import SecurityError
from ottla.security.stores import key_material, trusted_certificates
from support.certificates import PASSWORD

HERE = Path(__file__).parent
KEY_PASSWORD = "changeit2"
YEARS_100 = "36500"


def keytool(store: str, command: str, *options: str, input: bytes = b"") -> bytes:
    arguments = ["keytool", f"-{command}", "-keystore", str(HERE / store), "-storepass", PASSWORD, *options]
    return subprocess.run(arguments, input=input, capture_output=True, check=True).stdout


def make_key(store: str, alias: str, *options: str) -> None:
    new = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", YEARS_100, "-dname", f"CN={alias},O=ottla")
    keytool(store, "genkeypair", "-alias", alias, *new, *options)


def record() -> None:
    for old in (*HERE.glob("*.jks"), *HERE.glob("*.p12")):
        old.unlink()
    jks, p12 = ("-storetype", "JKS"), ("-storetype", "PKCS12")
    for name in ("one", "two"):
        make_key("authorities.jks", name, *jks, "-ext", "bc:c")
    one, two = (keytool("authorities.jks", "exportcert", "-alias", name) for name in ("one", "two"))
    for store, kind in (("key.jks", jks), ("key.p12", p12)):
        make_key(store, "server", *kind)
        asked = keytool(store, "certreq", "-alias", "server")
        names = ("-ext", "san=dns:localhost,ip:127.0.0.1", "-validity", YEARS_100)
        signed = keytool("authorities.jks", "gencert", "-alias", "one", *names, input=asked)
        keytool(store, "importcert", "-noprompt", "-alias", "authority", input=one)
        keytool(store, "importcert", "-alias", "server", input=signed)
    make_key("two_passwords.jks", "server", *jks, "-keypass", KEY_PASSWORD)
    for store, kind in (("trust.jks", jks), ("trust.p12", p12)):
        for name, certificate in (("one", one), ("two", two)):
            keytool(store, "importcert", "-noprompt", "-alias", name, *kind, input=certificate)
    (HERE / "authorities.jks").unlink()


@pytest.fixture(scope="module", autouse=True)
def recorded() -> None:
    if os.environ.get("OTTLA_RECORD"):
        record()


def key_settings(store: str, **more: str) -> dict[str, str]:
    settings = {"location": str(HERE / store), "password": PASSWORD, **more}
    return {f"ssl.keystore.{name}": value for name, value in settings.items()}


def trust_settings(store: str, **more: str) -> dict[str, str]:
    settings = {"location": str(HERE / store), "password": PASSWORD, **more}
    return {f"ssl.truststore.{name}": value for name, value in settings.items()}


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "127.0.0.1") -> tuple[bytes, str]:
    """The certificate that the client saw, and the version; over buffers in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[0].getpeercert(binary_form=True) or b"", ends[0].version() or ""


@pytest.mark.spec("S1")
@pytest.mark.parametrize("trust", ["trust.jks", "trust.p12"])
@pytest.mark.parametrize("key", ["key.jks", "key.p12"])
def test_keytools_stores_are_read_whatever_the_type_setting_says(key: str, trust: str) -> None:
    found = key_material(key_settings(key, type="JKS"))
    assert found is not None
    assert len(found.certificates) == 2
    certificates = trusted_certificates(trust_settings(trust, type="PKCS12"))
    assert certificates is not None
    assert len(certificates) == 2
    assert found.certificates[1] in certificates
    seen, version = shake_hands(server_context(key_settings(key)), client_context(trust_settings(trust)))
    assert (seen, version) == (found.certificates[0], "TLSv1.3")


@pytest.mark.spec("S1")
def test_a_key_may_have_a_password_of_its_own() -> None:
    with pytest.raises(SecurityError, match=r"the password of the key is wrong; set ssl.key.password"):
        server_context(key_settings("two_passwords.jks"))
    server_context(key_settings("two_passwords.jks") | {"ssl.key.password": KEY_PASSWORD})


@pytest.mark.spec("S1")
@pytest.mark.parametrize("store", ["trust.jks", "trust.p12"])
def test_a_trust_store_without_a_key_is_no_key_store(store: str) -> None:
    with pytest.raises(SecurityError, match=r"has no private key; import the key with its certificates"):
        key_material(key_settings(store))


@pytest.mark.spec("S1")
def test_a_trust_store_of_the_type_jks_needs_no_password() -> None:
    settings = trust_settings("trust.jks")
    del settings["ssl.truststore.password"]
    assert len(trusted_certificates(settings) or ()) == 2


@pytest.mark.spec("S1")
@pytest.mark.parametrize("store", ["key.jks", "key.p12"])
def test_a_wrong_password_and_damage_each_get_a_sentence(store: str, tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match=r"the password is wrong, or the file is damaged; check ssl.keystore.pass"):
        key_material(key_settings(store, password="wrong"))
    whole = (HERE / store).read_bytes()
    damaged = tmp_path / store
    for length in (5, 12, len(whole) // 2, len(whole) - 30):
        damaged.write_bytes(whole[:length])
        with pytest.raises(SecurityError, match=r"is damaged|the password is wrong"):
            key_material(key_settings(store, location=str(damaged)))
    for at in range(4, len(whole), 37):
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with pytest.raises(SecurityError):
            key_material(key_settings(store, location=str(damaged)))
