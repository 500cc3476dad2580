"""Questions that go to certain brokers: each answers for itself, and one that is gone does not stand for the others."""

from __future__ import annotations

import pytest

from ottla.client.admin.brokers import BrokerAdmin
from ottla.client.admin.configs import ConfigAdmin
from ottla.client.admin.model import ConfigResource
from ottla.client.errors import ClientTimeoutError, InvalidArgumentError, PartlyFailedError

TIMEOUT_MS = 2000


def configs_of(*nodes):
    resources = [ConfigResource.broker(node) for node in nodes]
    return lambda cluster: ConfigAdmin(cluster).describe_configs(resources, timeout_ms=TIMEOUT_MS)


def log_dirs_of(*nodes):
    return lambda cluster: BrokerAdmin(cluster).describe_log_dirs(nodes, timeout_ms=TIMEOUT_MS)


def told_by(result):
    return {str(getattr(item, "name", item)) for item in result}


@pytest.mark.parametrize("ask", [configs_of, log_dirs_of])
def test_a_broker_that_there_is_not(fakes, with_cluster, ask):
    with pytest.raises(InvalidArgumentError, match=r"has no broker 9 at the moment; its brokers are 0, 1, 2"):
        with_cluster(fakes, ask(9))
    with pytest.raises(PartlyFailedError, match="failed for 1 of 3") as caught:
        with_cluster(fakes, ask(9, 0, 2))
    assert told_by(caught.value.errors) == {"9"}
    assert told_by(caught.value.values) == {"0", "2"}


@pytest.mark.parametrize("ask", [configs_of, log_dirs_of])
def test_a_broker_that_does_not_answer(fakes, with_cluster, ask):
    fakes.advertised[1] = ("127.0.0.1", 1)  # nobody listens there
    with pytest.raises(PartlyFailedError, match=r"cannot connect to 127\.0\.0\.1:1") as caught:
        with_cluster(fakes, ask(1, 0, 2))
    assert told_by(caught.value.errors) == {"1"}
    assert all(isinstance(each, ClientTimeoutError) for each in caught.value.errors.values())
    assert told_by(caught.value.values) == {"0", "2"}


@pytest.mark.parametrize("ask", [configs_of, log_dirs_of])
def test_a_broker_that_has_moved(fakes, with_cluster, ask):
    async def work(cluster):
        await cluster.refresh([])
        cluster.metadata.nodes[1] = cluster.metadata.nodes[1]._replace(port=1)  # where it was before
        return await ask(1)(cluster)

    assert told_by(with_cluster(fakes, work)) == {"1"}
