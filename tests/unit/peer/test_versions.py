from __future__ import annotations

import pytest

from ottla.client.errors import UnsupportedVersionError
from ottla.peer.versions import USED, choose_version
from ottla.wire.apis import API, ApiKey


@pytest.mark.parametrize(("low", "high", "chosen"), [(0, 17, 12), (0, 8, 8), (4, 4, 4), (12, 20, 12)])
def test_the_newest_that_both_know(low, high, chosen):
    assert choose_version(ApiKey.FETCH, {ApiKey.FETCH: (low, high)}) == chosen


@pytest.mark.parametrize(("low", "high"), [(0, 3), (13, 17)])
def test_nothing_in_common(low, high):
    with pytest.raises(UnsupportedVersionError, match=f"FETCH in versions {low} to {high}, this client needs 4 to 12"):
        choose_version(ApiKey.FETCH, {ApiKey.FETCH: (low, high)})


def test_not_served_at_all():
    with pytest.raises(UnsupportedVersionError, match="does not serve INIT_PRODUCER_ID"):
        choose_version(ApiKey.INIT_PRODUCER_ID, {})


def test_all_used_versions_are_declared():
    for api_key, (oldest, newest) in USED.items():
        assert API[api_key].min_version <= oldest <= newest <= API[api_key].max_version
