"""make generate and make verify, on a folder of their own and on the repository."""

import pytest

from tests.support.repository import ROOT
from upgrader.api.drawing import phases_page
from upgrader.api.generate import GENERATORS, find_differences, main
from upgrader.core.model.phases import TRANSITIONS


@pytest.fixture
def generated(tmp_path):
    assert main([str(tmp_path)]) == 0
    return tmp_path


def test_the_repository_is_current():
    assert find_differences(ROOT, GENERATORS) == {}


def test_generate_writes_what_check_accepts(generated, capsys):
    assert main(["--check", str(generated)]) == 0
    assert capsys.readouterr().err == ""


def test_check_names_what_was_changed_and_what_nothing_makes_any_more(generated, capsys):
    crd = generated / "crds" / "gpustacks.yaml"
    crd.write_text(crd.read_text() + "# mine\n")
    (generated / "crds" / "former.yaml").write_text("kind: Former\n")
    assert main(["--check", str(generated)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "crds/former.yaml is not current: run `make generate`",
        "crds/gpustacks.yaml is not current: run `make generate`",
    ]
    assert crd.read_text().endswith("# mine\n"), "--check changes nothing"


def test_generate_again_restores_and_removes(generated):
    former = generated / "crds" / "former.yaml"
    former.write_text("kind: Former\n")
    (generated / "docs" / "reference" / "phases.md").unlink()
    main([str(generated)])
    assert not former.exists()
    assert find_differences(generated) == {}


def test_the_page_of_phases_draws_every_transition():
    page = phases_page()
    missing = [
        f"{row.phase} --> {to}" for row in TRANSITIONS for to in row.to if f"    {row.phase} --> {to}" not in page
    ]
    assert missing == []
    assert page.count("```mermaid") == len({row.machine for row in TRANSITIONS})
