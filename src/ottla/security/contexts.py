"""Contexts of `ssl` from Kafka's settings."""

from __future__ import annotations

import ssl

from ottla.env.secret_files import path_of_secret
from ottla.security.errors import SecurityError
from ottla.security.stores import KeyMaterial, Settings, as_pem, key_material, trusted_certificates

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
OUTDATED = ("SSL", "SSLv2", "SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
"""Versions that Java switches off even where they are enabled."""
SUITES_OF_TLS_1_3 = frozenset(("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"))
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(settings: Settings, keys: KeyMaterial | None = None) -> ssl.SSLContext:
    """The context of a listener, which `ssl.keystore.*` gives its certificate. Raises SecurityError.

    `keys` are those of the settings where they are read already.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    keys = keys or key_material(settings)
    if keys is None:
        raise SecurityError("a listener for TLS has no certificate; set ssl.keystore.location, or ssl.keystore.key")
    auth = str(settings.get("ssl.client.auth") or "none").lower()
    if auth not in CLIENT_AUTH:
        raise SecurityError(f"ssl.client.auth={auth} is not known; use {', '.join(CLIENT_AUTH)}")
    context.verify_mode = CLIENT_AUTH[auth]
    _set_common(context, settings, keys)
    return context


def client_context(settings: Settings) -> ssl.SSLContext:
    """The context of connections to brokers. Raises SecurityError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _set_common(context, settings, key_material(settings))
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm and algorithm.lower() != "https":
        raise SecurityError(
            f"ssl.endpoint.identification.algorithm={algorithm} is not known; use https, or nothing for no check of "
            "host names"
        )
    context.check_hostname = bool(algorithm)
    return context


def _set_common(context: ssl.SSLContext, settings: Settings, keys: KeyMaterial | None) -> None:
    if keys is not None:
        _load_keys(context, keys)
    trusted = trusted_certificates(settings)
    if trusted is None and context.verify_mode != ssl.CERT_NONE:
        is_server = context.protocol == ssl.PROTOCOL_TLS_SERVER
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH if is_server else ssl.Purpose.SERVER_AUTH)
    elif trusted is not None:
        try:
            context.load_verify_locations(cadata=b"".join(trusted))
        except ssl.SSLError as error:
            raise SecurityError(f"a certificate of the trust store cannot be used ({_words(error)})") from None
    # As Java: each certificate of the trust store is trusted, not only one that signed itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _choose_versions(context, settings)


def _load_keys(context: ssl.SSLContext, keys: KeyMaterial) -> None:
    is_encrypted = b"ENCRYPTED" in keys.key
    if is_encrypted and not keys.password:
        raise SecurityError(f"{keys.origin}: the private key is encrypted; set ssl.key.password")
    try:
        if keys.path is not None:
            context.load_cert_chain(keys.path, password=keys.password or "")
            return
        with path_of_secret(as_pem(keys.certificates) + keys.key) as path:
            context.load_cert_chain(path, password=keys.password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            cause = "the private key does not belong to the first certificate; put that of the key first"
        elif is_encrypted:
            cause = "the private key cannot be decrypted; check ssl.key.password"
        else:
            cause = f"the key or a certificate cannot be used ({_words(error)}); make them again"
        raise SecurityError(f"{keys.origin}: {cause}") from None


def _words(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def _choose_versions(context: ssl.SSLContext, settings: Settings) -> None:
    protocol = settings.get("ssl.protocol") or "TLSv1.3"
    enabled = _names(settings, "ssl.enabled.protocols") or [
        name for name in VERSIONS if protocol == "TLS" or name <= protocol
    ]
    for name in (protocol, *enabled):
        if name not in (*VERSIONS, *OUTDATED, "TLS"):
            raise SecurityError(f"ssl.protocol or ssl.enabled.protocols: {name} is not known; use TLSv1.2, TLSv1.3")
    versions = [VERSIONS[name] for name in enabled if name in VERSIONS]
    suites = _names(settings, "ssl.cipher.suites")
    if suites:
        versions = _choose_suites(context, suites, versions)
    if not versions:
        raise SecurityError(
            "ssl.enabled.protocols and ssl.cipher.suites leave no version of TLS that is safe; use TLSv1.2, TLSv1.3"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _choose_suites(context: ssl.SSLContext, suites: list[str], versions: list[ssl.TLSVersion]) -> list[ssl.TLSVersion]:
    """Set the suites; the versions of TLS that are left with them."""
    newer, older = SUITES_OF_TLS_1_3.intersection(suites), [each for each in suites if each not in SUITES_OF_TLS_1_3]
    if newer and newer != SUITES_OF_TLS_1_3 and ssl.TLSVersion.TLSv1_3 in versions:
        if not hasattr(context, "set_ciphersuites"):  # Python 3.15
            raise SecurityError(
                "ssl.cipher.suites: this Python cannot choose among the suites of TLS 1.3; name all three "
                f"({', '.join(sorted(SUITES_OF_TLS_1_3))}), or none of them"
            )
        context.set_ciphersuites(":".join(each for each in suites if each in newer))
    for name in older:
        try:
            context.set_ciphers(_openssl_name(name))
        except ssl.SSLError:
            raise SecurityError(f"ssl.cipher.suites: {name} is not known here; see openssl ciphers -stdname") from None
    if older:
        context.set_ciphers(":".join(map(_openssl_name, older)))
    usable = {ssl.TLSVersion.TLSv1_2: bool(older), ssl.TLSVersion.TLSv1_3: bool(newer)}
    return [each for each in versions if usable[each]]


def _openssl_name(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2 that has Java's (`TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA`)."""
    exchange, separator, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return name
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    return (f"{exchange}-{cipher}" if exchange != "RSA" else cipher).replace("_", "-")


def _names(settings: Settings, name: str) -> list[str]:
    value = settings.get(name) or []
    names = value.split(",") if isinstance(value, str) else value
    return [each.strip() for each in names if each.strip()]
