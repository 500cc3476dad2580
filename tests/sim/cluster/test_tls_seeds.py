"""Seeds of the simulated cluster with TLS on every connection."""

from __future__ import annotations

import pytest

from support.certificates import issue, the_authority
from support.simulated_cluster.seed_run import SeedRun, outcome_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.spec("R1", "S2")]


class TlsSeedRun(SeedRun):
    """The run of a seed in which brokers and clients speak TLS with each other."""

    def __init__(self, seed: int) -> None:
        keys = issue(the_authority(), "brokers", tuple(f"broker{number}" for number in range(1, self.brokers + 1)))
        self.settings = {
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": keys.key_pem(),
            "ssl.keystore.certificate.chain": keys.chain_pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": the_authority().certificate_pem,
        }
        super().__init__(seed)
        self.cluster.network.history = []


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers often have to offer again what is encrypted, and did not go out."""
    monkeypatch.setattr("support.simulated_cluster.network.SEND_BUFFER_BYTES", 1500)


@pytest.mark.parametrize("seed", range(4))
def test_a_cluster_with_tls_keeps_its_promises(seed: int) -> None:
    run = TlsSeedRun(seed)
    outcome = outcome_of(run)
    assert not outcome.wrong, story_of(outcome)
    assert outcome.acknowledged > 100
    sent = b"".join(each.data for each in run.cluster.network.history or ())
    assert len(sent) > 100_000
    assert b"producer0" not in sent, "the network sees no client ids"


@pytest.mark.usefixtures("sealed")
def test_a_seed_with_tls_tells_everything() -> None:
    """Keys of sessions differ, and nothing else."""
    first, again = (outcome_of(TlsSeedRun(7)) for _ in range(2))
    assert (first.digest, first.events) == (again.digest, again.events)
