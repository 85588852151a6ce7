"""The catalogue of reverted repairs fits today's source, and the note has what it says."""

from pathlib import Path

import pytest

from tests.support.repairs import PACKAGE
from tests.support.repairs_held_otherwise import HELD
from tests.support.repository import ROOT
from tests.support.reverted_repairs import REPAIRS

NOTE = ROOT / "docs/contributing/design/2026-11-25-chaos-seeds.md"


def rows():
    """The tables of the note, as the catalogue has them."""
    for repair in REPAIRS:
        laws = ", ".join(map(str, repair.laws))
        found = str(repair.finds or repair.because)
        yield f"| {repair.name} | {repair.defect} | {laws} | {found} |"
    for held in HELD:
        name = Path(held.test).name
        yield f"| {held.defect} | {held.why} | [{name}](../../../{held.test}) |"


@pytest.mark.parametrize("repair", REPAIRS, ids=str)
def test_what_a_repair_changes_stands_in_its_file_once(repair):
    counts = {change.path: (PACKAGE / change.path).read_text().count(change.old) for change in repair.changes}
    assert set(counts.values()) == {1}, counts


def test_each_repair_has_a_run_that_finds_it_or_says_why_not():
    assert [str(repair) for repair in REPAIRS if bool(repair.finds) is bool(repair.because)] == []
    assert [held.test for held in HELD if not (ROOT / held.test).exists()] == []


def test_the_note_has_the_tables():
    text = NOTE.read_text()
    assert [row for row in rows() if row not in text] == []
