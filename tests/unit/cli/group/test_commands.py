"""`ottla group` at a broker: what it refuses, what it shows only, and the exit codes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from ottla.cli.main import app
from ottla.client.sync import Admin
from ottla.testing import Broker

pytestmark = [pytest.mark.spec("G2"), pytest.mark.slow]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=1)
        yield broker


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    assert ottla(broker.bootstrap_servers, *RESET, "--create", "--yes").exit_code == 0
    return broker.bootstrap_servers


RESET = ("reset-offsets", "billing", "--topic", "orders", "--to-earliest")


def ottla(servers: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["group", *arguments, "-b", servers])


def groups(servers: str) -> list[str]:
    with Admin(bootstrap_servers=servers) as admin:
        return [each.group_id for each in admin.list_groups()]


@pytest.mark.parametrize("more", [[], ["--yes"], ["--json"], ["--export"], ["--yes", "--json"]])
def test_a_group_that_does_not_exist_is_not_made_by_a_slip(servers: str, more: list[str]) -> None:
    done = ottla(servers, "reset-offsets", "biling", *RESET[2:], *more)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("ottla group: there is no group biling at 127.0.0.1:")
    assert done.stderr.endswith(" (is it billing?); --create makes it, with these offsets\n")
    assert groups(servers) == ["billing"]


@pytest.mark.parametrize(("more", "code"), [([], 1), (["--json"], 1), (["--export"], 0), (["--yes"], 0)])
def test_what_is_shown_and_not_confirmed_ends_with_1(servers: str, more: list[str], code: int) -> None:
    done = ottla(servers, *RESET, *more)
    assert (done.exit_code, bool(done.stdout)) == (code, True)
    assert done.stderr == ("ottla group: nothing was changed: --yes does it\n" if code else "")


def test_groups_are_listed_by_states_that_there_are(servers: str) -> None:
    assert "billing" in ottla(servers, "list", "--state", "empty").stdout
    assert "billing" not in ottla(servers, "list", "--state", "Stable", "--state", "Dead").stdout
    wrong = ottla(servers, "list", "--state", "Foo")
    assert wrong.exit_code == 2
    assert "'Foo' is not one of 'stable', 'empty'" in " ".join(wrong.stderr.split())
