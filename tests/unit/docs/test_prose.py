"""The prose of the documentation has lines of at most 120 characters, and docs/README.md lists every page."""

import re
from pathlib import Path

import pytest

from tests.support.repository import ROOT, written_pages

LONGEST = 120
_LINK_ONLY = re.compile(r"(?:[-*] |\d+\. )?(?:\S+: )?\[[^\]]*\]\([^)]*\)[.,]?")


def prose_lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers, without fenced and indented code, tables and headings."""
    lines: list[tuple[int, str]] = []
    is_fenced, may_be_code = False, True
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        is_fence = stripped.startswith("```")
        is_fenced ^= is_fence
        is_code = is_fenced or is_fence or (may_be_code and line.startswith("    "))
        if not is_code and not stripped.startswith(("|", "#")):
            lines.append((number, line))
        may_be_code = not stripped or is_code
    return lines


def long_lines(text: str) -> list[int]:
    return [
        number for number, line in prose_lines(text) if len(line) > LONGEST and not _LINK_ONLY.fullmatch(line.strip())
    ]


@pytest.mark.parametrize("page", written_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_lines_are_short(page: Path) -> None:
    assert long_lines(page.read_text()) == []


def test_long_lines_are_found() -> None:
    words, link = "word " * 30, f"- [page]({'x' * 130})"
    assert long_lines(f"{words}\n\n| {words} |\n# {words}\n\n    {words}\n\n{link}\n") == [1]
    assert long_lines(f"```\n{words}\n```\n- {words}\n") == [4]


def test_every_page_is_listed() -> None:
    listed = set(re.findall(r"\]\(([^)#]+)", (ROOT / "docs/README.md").read_text()))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages - listed == {"README.md"}
