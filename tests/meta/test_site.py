"""The documentation as a site: Sphinx builds it without a warning, and all of its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

from support.programs import site_python

pytestmark = pytest.mark.spec("U5")

PROJECT: Final = Path(__file__).resolve().parents[2]
LINK: Final = re.compile(r'\b(?:href|src)="([^"]*)"')
ANCHOR: Final = re.compile(r'\bid="([^"]*)"')


def broken_links(site: Path) -> Iterator[str]:
    """Links of a site's pages to files or anchors that are not there; other sites are not asked."""
    pages = {path.resolve(): path.read_text() for path in site.rglob("*.html")}
    anchors = {path: {unescape(each) for each in ANCHOR.findall(text)} for path, text in pages.items()}
    for page, text in pages.items():
        for link in {unescape(each) for each in LINK.findall(text)}:
            path, _, anchor = unquote(link).partition("#")
            target = (page.parent / path.partition("?")[0]).resolve() if path else page
            if "://" in link or link.startswith(("data:", "mailto:")):
                continue
            if not target.exists() or (anchor and anchor not in anchors.get(target, {anchor})):
                yield f"{page.relative_to(site.resolve())}: {link}"


@pytest.mark.needs_site
@pytest.mark.slow
def test_it_is_built_without_a_warning_and_no_link_is_broken(tmp_path: Path) -> None:
    """With the theme that costs least; what theme shows the pages matters to none of their links."""
    python, site = site_python(), tmp_path / "site"
    options = ["--fail-on-warning", "--keep-going", "--quiet", "-D", "html_theme=basic", "-d", tmp_path / "pages"]
    command = [python, "-m", "sphinx", *options, "-c", PROJECT / "docs" / "site", PROJECT, site]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert list(broken_links(site)) == []


def test_users_come_first_and_decisions_last() -> None:
    sections = re.findall(r"^## (.+)$", (PROJECT / "docs" / "index.md").read_text(), re.MULTILINE)
    assert (sections[0], sections[-2:]) == ("Begin here", ["For developers", "Decisions"])


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top">a</h1><a href="b.html#b">b</a><a href="#top">a</a><a href="c%20c.txt">'
    )
    (tmp_path / "b.html").write_text('<h1 id="c">b</h1><img src="no.png"><a href="https://kafka.apache.org">')
    (tmp_path / "c c.txt").write_text("c")
    assert sorted(broken_links(tmp_path)) == ["a.html: b.html#b", "b.html: no.png"]
