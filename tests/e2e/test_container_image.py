"""docker/Dockerfile, step by step in a directory that debootstrap fills, and the broker in it, started by each module.

It takes minutes: Debian is fetched and unpacked, and the package is compiled in it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from e2e.test_container import use
from support.container import MODULES, started_container
from support.image_build import Image, build, make_base
from support.java import PROJECT
from support.processes import run_tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.spec("U4"),
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap and chroot need root"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="no debootstrap (apt-get install debootstrap)"),
    pytest.mark.timeout(1800),
]


def sent_files() -> list[str]:
    """The files that Docker would get: those of the commit and new ones, as Dockerfile.dockerignore says."""
    listed = run_tool(["git", "-C", str(PROJECT), "ls-files", "--cached", "--others", "--exclude-standard"]).stdout
    rules = [line for line in (PROJECT / "docker/Dockerfile.dockerignore").read_text().split("\n") if line.strip("# ")]
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    dropped = [rule.removeprefix("**/") for rule in rules if rule.startswith("**/")]
    return [
        name
        for name in listed.splitlines()
        if any(name == each or name.startswith(f"{each}/") for each in kept)
        and not any(fnmatch(part, each) for part in Path(name).parts for each in dropped)
        and (PROJECT / name).is_file()
    ]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    directory = tmp_path_factory.mktemp("image")
    base = directory / "base"
    make_base(base)
    yield build(PROJECT / "docker" / "Dockerfile", PROJECT, sent_files(), base, directory)
    shutil.rmtree(directory)  # two gigabytes


def test_it_is_compiled_and_has_its_extras(image: Image) -> None:
    assert "(compiled)" in run_tool([*image.enter, "ottla", "--version"]).stdout
    run_tool([*image.enter, "python", "-c", "import kazoo, prometheus_client, uvloop"])
    assert image.command == ["/etc/kafka/docker/run"]
    assert run_tool([*image.enter, "id", "-un"]).stdout == "ottla\n"


@pytest.mark.parametrize("name", MODULES)
def test_testcontainers_start_a_broker(image: Image, name: str, tmp_path: Path) -> None:
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin", "KAFKA_LOG_DIRS": f"/var/lib/kafka/data/{name}"}
    with started_container(MODULES[name], tmp_path, enter=image.enter, root=image.root, env=env) as container:
        use(container.bootstrap)
    assert (image.root / "var/lib/kafka/data" / name / "orders-0").is_dir()
