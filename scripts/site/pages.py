"""Pages of the site, a hook of MkDocs: those of docs/ and its tables, and what the docs link to outside of it.

Sources are read on GitHub as they are, so their links go by the repository's paths. Here each page of the site
knows the file that it is made of, and a link to a file that is a page of the site is turned to that page.
"""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

HOUSE = Path(__file__).resolve().parents[2]
DOCS = "docs"
OUTSIDE = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
}
"""Files that have another name on the site."""
DECISIONS, EXAMPLES, TABLES = "docs/decisions", "examples", "docs/figures"
CODE = (".py", ".yaml", ".yml", ".json", ".ipynb")
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?\)")
"""A link within the repository: no scheme, not only an anchor."""
ITEM = re.compile(r"(?:[-*]|\d+\.) ")
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def site_pages(house: Path) -> dict[str, str]:
    """Each file or folder that is a page or a picture, by its path in the repository: its path on the site."""
    pages = {
        f"{DOCS}/{path.relative_to(house / DOCS).as_posix()}": path.relative_to(house / DOCS).as_posix()
        for path in sorted((house / DOCS).rglob("*"))
        if path.suffix in (".md", ".png")
    }
    for path in sorted((house / TABLES).glob("*.csv")):
        page = path.relative_to(house / DOCS).with_suffix(".md")
        pages[path.relative_to(house).as_posix()] = page.as_posix()
    for path in sorted((house / EXAMPLES).rglob("README.md")):
        folder = path.parent.relative_to(house).as_posix()
        pages[f"{folder}/README.md"] = pages[folder] = f"{folder}/index.md"
    return pages | OUTSIDE | {DECISIONS: "decisions/index.md"}


def with_site_links(text: str, source: str, pages: Mapping[str, str]) -> str:
    """A page's text with links as the site has them. `source`: its file in the repository."""
    here = posixpath.dirname(pages[source])

    def turned(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        if target not in pages:
            return link[0]
        return f"{link[1]}{posixpath.relpath(pages[target], here or '.')}{link[3] or ''})"

    return LINK.sub(turned, text)


def with_lists_apart(text: str) -> str:
    """The text with an empty line before each list that follows a paragraph at once: GitHub asks for none."""
    lines: list[str] = []
    in_code = False
    for line in text.split("\n"):
        in_code ^= line.startswith("```")
        before = lines[-1] if lines else ""
        if not in_code and ITEM.match(line) and before.strip() and not (ITEM.match(before) or before[0] == " "):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def decisions_page(house: Path) -> str:
    """The list of decisions, in their order."""
    lines = [f"- [{_title(path)}]({path.name})" for path in sorted((house / DECISIONS).glob("*.md"))]
    return "\n".join(
        ["# Decisions", "", "For you if you want to know why things are as they are.", "", *lines, ""]
    )


def table_page(path: Path) -> str:
    """A CSV file as a page."""
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = [[cell.replace("|", "\\|") for cell in row] for row in csv.reader(file)]
    table = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
    part, _, name = path.stem.partition("-")
    title = f"# {part.capitalize()}: {name}"
    return "\n".join([title, "", f'<a href="{path.name}" download>This table as CSV</a>', "", *table, ""])


def _title(path: Path) -> str:
    found = TITLE.search(path.read_text(encoding="utf-8"))
    return found[1] if found else path.stem


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add tables, decisions and examples to the navigation."""
    pages = site_pages(HOUSE)
    examples = [pages[path] for path in pages if path.startswith(EXAMPLES) and path.endswith("README.md")]
    decisions = [pages[path] for path in pages if path.startswith(f"{DECISIONS}/")]
    tables = [pages[path] for path in pages if path.startswith(f"{TABLES}/")]
    assert config.nav is not None
    if tables:
        config.nav.append({"Measured tables": tables})
    if examples:
        config.nav.append({"Examples": examples})
    config.nav.append({"Decisions": ["decisions/index.md", *decisions]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside of docs/; the index of docs/ makes room for the README."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - MkDocs runs hooks; tests of the links need none of it

    index = files.get_file_from_path("README.md")
    assert index is not None
    files.remove(index)
    for source, page in site_pages(HOUSE).items():
        if files.get_file_from_path(page) is None:
            files.append(File.generated(config, page, content=_content(source)))
    for path in sorted((HOUSE / EXAMPLES).rglob("*")):
        if path.suffix in CODE:  # downloaded as it is
            files.append(File.generated(config, path.relative_to(HOUSE).as_posix(), abs_src_path=str(path)))
    return files


def _content(source: str) -> str:
    if source == DECISIONS:
        return decisions_page(HOUSE)
    if source.endswith(".csv"):
        return table_page(HOUSE / source)
    text = (HOUSE / source).read_text(encoding="utf-8")
    return f"# Licence\n\n```text\n{text}```\n" if source == "LICENSE" else text


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs's
    """Turn the links of a page."""
    pages = site_pages(HOUSE)
    source = next(path for path, name in pages.items() if name == page.file.src_uri)
    return with_lists_apart(with_site_links(markdown, source, pages))
