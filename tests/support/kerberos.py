"""A realm of Kerberos for tests: a KDC of the system, started by k5test, with principals and their key tabs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.java import PROJECT
from support.ports import free_port

REALM = "OTTLA.TEST"
#: The host of brokers, in their principals, too; Java looks up the name of an address.
HOST = "localhost"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


def kerberos_packages() -> Path | None:
    """The folder with gssapi and k5test: `OTTLA_KERBEROS`, else `.cache/kerberos`; None without them or a KDC."""
    folder = Path(os.environ.get("OTTLA_KERBEROS") or PROJECT / ".cache" / "kerberos")
    path = os.pathsep.join((os.environ["PATH"], "/usr/sbin"))
    has_kdc = shutil.which("krb5kdc", path=path) and shutil.which("krb5-config", path=path)
    return folder if has_kdc and (folder / "k5test").is_dir() else None


def key_tab_jaas(name: str, path: Path) -> str:
    """The login of a principal by its key tab."""
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{path}" principal="{name}@{REALM}";'


class Realm:
    """A realm that runs."""

    def __init__(self, found: Any, folder: Path) -> None:
        self._found = found
        self._folder = folder
        self.environment = {name: str(found.env[name]) for name in ("KRB5_CONFIG", "KRB5_KDC_PROFILE")}

    def key_tab(self, name: str) -> Path:
        """Make a principal, and a file with its key."""
        path = self._folder / f"{name.replace('/', '-')}.keytab"
        self._found.addprinc(f"{name}@{REALM}")
        self._found.extract_keytab(f"{name}@{REALM}", str(path))
        return path

    def tickets(self, name: str) -> Path:
        """A cache with the tickets of a new principal, as `kinit` makes it."""
        import gssapi

        path = self._folder / f"{name}.tickets"
        store = {"client_keytab": str(self.key_tab(name)), "ccache": f"FILE:{path}"}
        principal = gssapi.Name(f"{name}@{REALM}", gssapi.NameType.kerberos_principal)
        assert gssapi.Credentials(name=principal, usage="initiate", store=store).lifetime > 0
        return path

    def jaas(self, name: str) -> str:
        """The login of a new principal by its key tab."""
        return key_tab_jaas(name, self.key_tab(name))


@contextmanager
def realm(folder: Path) -> Iterator[Realm]:
    """A realm whose KDC listens on 127.0.0.1; the library of this process uses it."""
    packages = str(kerberos_packages())
    sys.path.append(packages)
    assert importlib.util.find_spec("gssapi")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of compiling it, where no cache has it
        from k5test import K5Realm

    port = free_port()
    found = K5Realm(
        realm=REALM,
        portbase=port,
        krb5_conf={
            "libdefaults": {"dns_canonicalize_hostname": "false", "rdns": "false"},
            "realms": {"$realm": {"kdc": "127.0.0.1:$port0"}},
        },
        kdc_conf={"realms": {"$realm": {"kdc_listen": "127.0.0.1:$port0", "kdc_tcp_listen": "127.0.0.1:$port0"}}},
        get_creds=False,
        create_user=False,
        create_host=False,
        existing=None,
    )
    made = Realm(found, folder)
    before = {name: os.environ.get(name) for name in made.environment}
    os.environ.update(made.environment)
    try:
        yield made
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        found.stop()
        sys.path.remove(packages)


def broker_settings(realm: Realm) -> dict[str, str]:
    """Of a broker whose listener PLAINTEXT speaks SASL_PLAINTEXT, with GSSAPI alone, as is Kafka's default."""
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": f"PLAINTEXT://{HOST}:0",
        "connection.failed.authentication.delay.ms": "10",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.plaintext.gssapi.sasl.jaas.config": realm.jaas(f"kafka/{HOST}"),
    }


def login(bootstrap_servers: str, jaas: str) -> dict[str, str]:
    """Settings of our clients and of Java's."""
    return {
        "bootstrap.servers": bootstrap_servers.replace("127.0.0.1", HOST),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": jaas,
    }
