"""The documentation as a site, for Sphinx: `./run docs --site DIR`. Its pages are the files of docs/ as they are.

docs/index.md says which pages there are, and in which order: each of its sections is one of the site's. Pages of
docs/tour that it does not list follow those that it lists, or come before those on Spark.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from sphinx.addnodes import pending_xref

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
PAGE_LINK = re.compile(r"\]\(([^):#]+)\.md(?:#[^)]*)?\)")

project = "ottla"
root_doc = "docs/index"
extensions = ["myst_parser"]
include_patterns = ["*.md", "bench/*.md", "docs/**"]
# Whatever else is in the project is not even looked through.
exclude_patterns = [path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in ("bench", "docs")]
myst_heading_anchors = 6
# Blocks that show a language with "…" in it cannot be coloured.
suppress_warnings = ["misc.highlighting_failure"]
highlight_language = "none"
html_theme = "furo"
html_title = "ottla"
html_copy_source = False
html_extra_path = ["index.html"]


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("doctree-read", leave_text_of_directories)


def add_contents(_app: Sphinx, name: str, source: list[str]) -> None:
    """Append a table of contents to the index: all pages that its sections link, which a git host does not need."""
    if name != root_doc:
        return
    sections = [(text.partition("\n")[0], pages_in(text)) for text in source[0].split("\n## ")[1:]]
    listed = {page for _, pages in sections for page in pages}
    tour = sorted(f"docs/tour/{path.stem}" for path in (ROOT / "docs" / "tour").glob("*.md"))
    left = [page for page in tour if page not in listed]
    if here := [pages for _, pages in sections if any(page.startswith("docs/tour/") for page in pages)]:
        here[0].extend(left)
    elif left:
        at = next(number for number, (heading, _) in enumerate(sections) if heading.startswith("Spark"))
        sections.insert(at, ("The tour", left))
    for heading, pages in sections:
        entries = "\n".join(f"/{page}" for page in pages)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{entries}\n```\n"


def pages_in(section: str) -> list[str]:
    """The pages that a section of docs/index.md links, in order."""
    return [posixpath.normpath(f"docs/{link}") for link in PAGE_LINK.findall(section)]


def leave_text_of_directories(app: Sphinx, page: nodes.document) -> None:
    """A link to a directory of the project has no page: its text stays."""
    for link in list(page.findall(pending_xref)):
        if (ROOT / posixpath.dirname(app.env.docname) / link["reftarget"]).is_dir():
            link.replace_self(link.children)
