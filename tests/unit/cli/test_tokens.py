"""`ottla token`: delegation tokens made, shown, renewed and deleted; what `create` prints logs a client in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import ottla
from support.sasl_broker import login, sasl_broker

pytestmark = [pytest.mark.spec("S2"), pytest.mark.spec("S6"), pytest.mark.spec("U2")]


def test_a_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sasl_broker(delegation_token_secret_key="hush") as broker:
        named = "".join(f"{name} = {json.dumps(value)}\n" for name, value in login(broker).items())
        (tmp_path / "clusters.toml").write_text(f"[prod]\n{named}")
        monkeypatch.setenv("OTTLA_CLUSTERS_FILE", str(tmp_path / "clusters.toml"))
        monkeypatch.setenv("OTTLA_CLUSTER", "prod")
        assert ottla("token", "list").output == "no tokens\n"
        made = ottla("token", "create", "--renewer", "User:bob", "--for", "PT1H").stdout
        about, user, password, is_token = made.splitlines()
        assert about.startswith("# User:alice, until ")
        assert is_token == "sasl.tokenauth=true"
        token_id, hmac = user.removeprefix("sasl.username="), password.removeprefix("sasl.password=")
        own = tmp_path / "token.properties"
        own.write_text(f"{made}security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n")
        at = ("-b", broker.bootstrap_servers, "--properties", str(own))
        assert ottla("produce", "t", *at, stdin="one\n").exit_code == 0
        listed = ottla("token", "list", "--owner", "User:bob").output
        assert [line.split()[:4] for line in listed.splitlines()] == [
            ["TOKEN", "OWNER", "REQUESTER", "RENEWERS"],
            [token_id, "User:alice", "User:alice", "User:bob"],
        ]
        row = json.loads(ottla("token", "list", "--json").output)
        assert (row["token"], row["renewers"], row["at_most_ms"] - row["issued_ms"]) == (
            token_id,
            ["User:bob"],
            3_600_000,
        )
        assert hmac not in listed + json.dumps(row)
        renewed = json.loads(ottla("token", "renew", token_id, "--for", "PT30M", "--json").output)
        assert renewed["expires_ms"] < row["expires_ms"]
        assert ottla("token", "renew", token_id).output.startswith(f"renewed: token {token_id}, until ")
        assert ottla("token", "delete", token_id).exit_code == 1
        deleted = ottla("token", "delete", token_id, "--yes").output
        assert deleted == f"deleted: token {token_id} of User:alice\n"
        gone = ottla("token", "delete", token_id, "--yes")
        assert (gone.exit_code, f"token {token_id} is not there, or you may not see it" in gone.output) == (2, True)
        wrong = ottla("token", "create", "--for", "1h")
        assert (wrong.exit_code, "--for '1h' is not a duration" in wrong.output) == (2, True)
        other = json.loads(ottla("token", "create", "--owner", "User:carol", "--json").output)
        assert (other["owner"], other["requester"], len(other["hmac"])) == ("User:carol", "User:alice", 88)
