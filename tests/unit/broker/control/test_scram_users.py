"""SCRAM credentials in the znodes, and the answers of the APIs that change them.

`../test_changes_everywhere.py` shows their effect on all brokers.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.admin import ScramCredentialInfo, UserScramCredentialDeletion, UserScramCredentialUpsertion
from ottla.client.errors import BrokerError, PartlyFailedError
from ottla.client.sync import Admin
from ottla.cluster.refusal import LONGEST_RESPONSE_MESSAGE
from ottla.security.scram import SCRAM_MECHANISMS, credential_of, salted_password
from ottla.testing import Broker
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from support.raw_client import RawClient

pytestmark = pytest.mark.spec("S2")
SHA_256, SHA_512 = SCRAM_MECHANISMS


@pytest.fixture(scope="module")
def plain() -> Iterator[Broker]:
    """Without SASL: credentials can be made there, too."""
    with Broker() as broker:
        yield broker


def test_users_made_described_changed_and_deleted(plain):
    with Admin(bootstrap_servers=plain.bootstrap_servers) as admin:
        assert admin.describe_user_scram_credentials() == {}
        admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion("zoë, =x", SHA_256, "secret", 8192),
                UserScramCredentialUpsertion("amy", SHA_256, "secret"),
                UserScramCredentialUpsertion("amy", SHA_512, "secret"),
            ]
        )
        both = [ScramCredentialInfo(SHA_256, 4096), ScramCredentialInfo(SHA_512, 4096)]
        assert admin.describe_user_scram_credentials() == {
            "amy": both,
            "zoë, =x": [ScramCredentialInfo(SHA_256, 8192)],
        }
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("amy", SHA_256)])
        assert admin.describe_user_scram_credentials(["amy"]) == {"amy": both[1:]}
        admin.alter_user_scram_credentials(
            [UserScramCredentialDeletion("amy", SHA_512), UserScramCredentialDeletion("zoë, =x", SHA_256)]
        )
        with pytest.raises(BrokerError, match="does not exist") as error:
            admin.describe_user_scram_credentials(["amy"])
        assert error.value.code == ErrorCode.RESOURCE_NOT_FOUND
        with pytest.raises(PartlyFailedError, match="Too few iterations"):
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(name, SHA_256, "secret", 1) for name in ("a", "b")]
            )


def test_kafkas_errors(plain):
    """Source: Apache Kafka 3.9, ZkAdminManager."""
    salted = {"salt": b"s", "salted_password": b"p"}
    with RawClient(plain.port) as client:
        request = AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name="missing", mechanism=1),
                ScramCredentialDeletion(name="twice", mechanism=1),
                ScramCredentialDeletion(name="unknown", mechanism=3),
            ],
            upsertions=[
                ScramCredentialUpsertion(name="", mechanism=1, iterations=4096, **salted),
                ScramCredentialUpsertion(name="few", mechanism=1, iterations=4095, **salted),
                ScramCredentialUpsertion(name="many", mechanism=1, iterations=16385, **salted),
                ScramCredentialUpsertion(name="twice", mechanism=1, iterations=4096, **salted),
            ],
        )
        results = client.ask(request, AlterUserScramCredentialsResponse, 0).results
        assert {each.user: (each.error_code, each.error_message) for each in results} == {
            "missing": (91, "Attempt to delete a user credential that does not exist"),
            "twice": (92, "A user credential cannot be altered twice in the same request"),
            "unknown": (33, "Unknown SCRAM mechanism"),
            "": (93, "Username must not be empty"),
            "few": (93, "Too few iterations"),
            "many": (93, "Too many iterations"),
        }
        users = [UserName(name=name) for name in ("", "missing", "twice", "twice", *[32_767 * "x"] * 2)]
        answer = client.ask(DescribeUserScramCredentialsRequest(users=users), DescribeUserScramCredentialsResponse, 0)
        assert (answer.results[-1].error_code, len(answer.results[-1].error_message)) == (92, LONGEST_RESPONSE_MESSAGE)
        assert [(each.user, each.error_code, each.error_message) for each in answer.results[:-1]] == [
            ("", 91, "Username must not be empty"),
            ("missing", 91, "Attempt to describe a user credential that does not exist"),
            ("twice", 92, "Cannot describe SCRAM credentials for the same user twice in a single request: twice"),
        ]


def test_the_text_of_a_credential_is_what_apache_kafka_writes() -> None:
    """Recorded of Apache Kafka 3.9; `interop/clients/test_secured_listeners.py` compares it with a running broker."""
    salt = b"salt-of-this-test-"
    credential = credential_of(SHA_256, salted_password(SHA_256, "secret", salt, 4096), salt, 4096)
    assert credential.to_text() == (
        "salt=c2FsdC1vZi10aGlzLXRlc3Qt,stored_key=B3kt42nWHonpziO9JgZ8GmsQcWqrf6Sigc8UliuqQY8=,"
        "server_key=w7B2XrNJfPaH0mCUkH3WEXA3M0XphEDECEec+KhfM+Q=,iterations=4096"
    )
