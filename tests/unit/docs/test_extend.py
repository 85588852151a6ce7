"""Pages for contributors name files that exist."""

import re

import pytest

from tests.support.repository import ROOT

PAGES = ("docs/contributing/extend.md", "CONTRIBUTING.md", "docs/contributing/architecture.md")
PATH = re.compile(r"`((?:upgrader|dev|tests|docs|deploy|driver-images|Containerfiles)/[^`*<> ]*)`")


@pytest.mark.parametrize("page", PAGES)
def test_paths_in_a_page_exist(page):
    paths = PATH.findall((ROOT / page).read_text())
    assert len(paths) > 3
    assert [path for path in paths if not (ROOT / path.partition("#")[0]).exists()] == []
