"""Names of APIs and errors in fault rules."""

from __future__ import annotations

import pytest

from ottla.testing import TestBrokerError
from ottla.testing.faults.named import api_named, error_named
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

pytestmark = pytest.mark.spec("U1")


@pytest.mark.parametrize(
    "name", ["OffsetCommit", "offsetcommit", "OFFSET_COMMIT", "offset-commit", ApiKey.OFFSET_COMMIT]
)
def test_apis_are_named_as_in_kafka_in_any_case(name: str | ApiKey) -> None:
    assert api_named(name) is ApiKey.OFFSET_COMMIT


@pytest.mark.parametrize("name", ["NOT_LEADER_OR_FOLLOWER", "not_leader_or_follower", ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_errors_are_named_as_in_kafka_in_any_case(name: str | ErrorCode) -> None:
    assert error_named(name) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Prodcue", "^there is no API Prodcue; did you mean Produce\\?$"),
        ("xyzzy", "^there is no API xyzzy; there are: AddOffsetsToTxn, AddPartitionsToTxn, .* more$"),
        ("DescribeQuorum", "^the broker does not serve DescribeQuorum, so that no request for it can fail$"),
        (0, '^an API is named by text, as in "Produce", not by 0$'),
    ],
)
def test_a_wrong_api_is_named(name: str, said: str) -> None:
    with pytest.raises(TestBrokerError, match=said):
        api_named(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NOT_LEADER", "^there is no error NOT_LEADER; did you mean NOT_LEADER_OR_FOLLOWER\\?$"),
        ("xyzzyxyzzy", "^there is no error xyzzyxyzzy; there are: BROKER_ID_NOT_REGISTERED, .* more$"),
        ("NONE", "^NONE is the code of success: a rule needs an error$"),
        (6, '^an error is named by text, as in "NOT_LEADER_OR_FOLLOWER", not by 6$'),
    ],
)
def test_a_wrong_error_is_named(name: str, said: str) -> None:
    with pytest.raises(TestBrokerError, match=said):
        error_named(name)
