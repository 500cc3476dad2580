"""Keys and certificates from the settings: PEM in files and settings, PKCS12, and what is wrong with them."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest

from ottla.env import secret_files
from ottla.records.extras import MissingExtraError
from ottla.security import stores
from ottla.security.contexts import client_context, server_context
from ottla.security.errors import SecurityError
from ottla.security.stores import key_material, trusted_certificates
from support.certificates import PASSWORD, Issued, issue, the_authority

pytestmark = pytest.mark.spec("S1")


@pytest.fixture(scope="module")
def server() -> Issued:
    return issue(the_authority(), "server")


def in_settings(issued: Issued, password: str | None = None) -> dict[str, str]:
    found = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": issued.chain_pem,
        "ssl.keystore.key": issued.key_pem(password),
    }
    return found if password is None else found | {"ssl.key.password": password}


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_pem_in_settings_also_on_one_line(server: Issued, password: str | None) -> None:
    settings = in_settings(server, password)
    for spelled in (settings, {name: value.replace("\n", " ") for name, value in settings.items()}):
        found = key_material(spelled)
        assert found is not None
        assert found.certificates == (server.der, the_authority().der)
        assert found.expires == server.certificate.not_valid_after_utc
        assert "PRIVATE" not in repr(found)
        assert PASSWORD not in repr(found)
        server_context(spelled)


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_pem_in_a_file_with_the_key_anywhere(server: Issued, tmp_path: Path, password: str | None) -> None:
    path = tmp_path / "server.pem"
    for text in (server.key_pem(password) + server.chain_pem, server.chain_pem + server.key_pem(password)):
        path.write_text(text)
        settings = {"ssl.keystore.location": str(path), "ssl.key.password": password}
        for spelled in (settings, settings | {"ssl.keystore.type": "PEM"}):
            assert server_context(spelled).verify_mode == ssl.CERT_NONE


def test_the_chain_of_a_pkcs12_store_is_put_in_order(server: Issued, tmp_path: Path) -> None:
    path = tmp_path / "server.p12"
    path.write_bytes(server.pkcs12())
    found = key_material({"ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD})
    assert found is not None
    assert found.certificates == (server.der, the_authority().der)


def test_without_settings_there_is_no_store() -> None:
    assert key_material({}) is None
    assert trusted_certificates({"ssl.truststore.location": None, "ssl.truststore.certificates": ""}) is None


def test_trusted_certificates_in_settings(server: Issued) -> None:
    text = "a comment\n" + the_authority().certificate_pem + server.certificate_pem
    settings = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}
    assert trusted_certificates(settings) == (the_authority().der, server.der)


def wrong(**settings: str) -> dict[str, str]:
    return {f"ssl.{name.replace('_', '.')}": value for name, value in settings.items()}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (wrong(keystore_location="/no/such.jks"), "cannot be read .No such file or directory.; check the path"),
        (wrong(keystore_location="folder"), "cannot be read .Is a directory."),
        (wrong(keystore_location="noise.store"), "is neither PEM nor a PKCS12 or JKS store"),
        (wrong(keystore_location="large.store"), "cannot be read .File too large."),
        (
            wrong(keystore_location="jceks.store", keystore_password="x"),
            "JCEKS; convert it with keytool -importkeystore",
        ),
        (wrong(keystore_location="p12.store"), "is set without its password; set ssl.keystore.password"),
        (
            wrong(keystore_location="p12.store", keystore_password="no"),
            "the password is wrong, .*check ssl.keystore.passw",
        ),
        (wrong(keystore_location="ca.store"), "has no private key in PEM"),
        (wrong(keystore_location="key.store"), "has no certificate in PEM"),
        (wrong(keystore_location="bad.store"), "is damaged"),
        (wrong(keystore_location="pem.store", keystore_password="x"), "a file in PEM has no password"),
        (wrong(keystore_location="locked.store"), "the private key is encrypted; set ssl.key.password"),
        (wrong(keystore_location="locked.store", key_password="no"), "cannot be decrypted; check ssl.key.password"),
        (wrong(keystore_location="other.store"), "does not belong to the first certificate"),
        (wrong(keystore_type="BCFKS"), "ssl.keystore.type=BCFKS is not supported; use PEM, PKCS12 or JKS"),
        (wrong(keystore_password="x"), "ssl.keystore.password is set without a store"),
        (wrong(keystore_key="x"), "set ssl.keystore.type=PEM beside it"),
        (wrong(keystore_type="PEM", keystore_key="x"), "set ssl.keystore.certificate.chain"),
        (wrong(keystore_type="pem", keystore_certificate_chain="x"), "set ssl.keystore.key"),
        (wrong(truststore_location="p12.store", truststore_password="no"), "wrong, .*check ssl.truststore.password"),
        (wrong(truststore_location="pem.store", truststore_password="x"), "remove the setting"),
        (wrong(truststore_type="PEM", truststore_certificates="x"), "has no certificate in PEM"),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else "",
)
def test_each_mistake_gets_a_sentence(
    server: Issued, tmp_path: Path, settings: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MAX_STORE_BYTES", 10_000)
    contents: dict[str, bytes | str] = {
        "noise.store": b"\x00noise",
        "large.store": b"\x30" * 10_001,
        "jceks.store": b"\xce\xce\xce\xce\x00",
        "p12.store": server.pkcs12(),
        "ca.store": server.chain_pem,
        "key.store": server.key_pem(),
        "bad.store": server.key_pem() + server.chain_pem.replace("MII", "M?I"),
        "pem.store": server.key_pem() + server.chain_pem,
        "locked.store": server.key_pem(PASSWORD) + server.chain_pem,
        "other.store": server.key_pem() + the_authority().certificate_pem,
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    (tmp_path / "folder").mkdir()
    paths = {name: str(tmp_path / name) for name in (*contents, "folder")}
    with pytest.raises(SecurityError, match=message):
        client_context(
            {name: paths[value] if "location" in name and value in paths else value for name, value in settings.items()}
        )


def test_damaged_certificates_of_every_length_are_refused(server: Issued, tmp_path: Path) -> None:
    path, whole = tmp_path / "server.p12", server.pkcs12()
    for length in range(1, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(SecurityError):
            key_material({"ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD})


def test_without_cryptography_a_pkcs12_store_names_the_extra(
    server: Issued, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.p12"
    path.write_bytes(server.pkcs12())
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ottla\[tls\]'"):
        key_material({"ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD})
    server_context(in_settings(server, PASSWORD))


def test_where_no_file_stays_in_memory_the_key_is_in_a_private_one_and_removed(
    server: Issued, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_files, "_memory_file", lambda: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []
    with secret_files.path_of_secret(b"secret") as path:
        seen = [(each.stat().st_mode & 0o777) for each in (Path(path), Path(path).parent)]
        assert Path(path).read_bytes() == b"secret"
    assert seen == [0o600, 0o700]
    server_context(in_settings(server))
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_memory_has_no_name_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with secret_files.path_of_secret(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
        assert bool(list(tmp_path.iterdir())) is not path.startswith("/proc/")
