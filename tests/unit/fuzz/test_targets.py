"""Every target over what it begins with and what broke it once: without a fuzzer, so that no target rots."""

import pytest

from tests.fuzz import corpus
from tests.fuzz.names import NAMES, PLANTED
from tests.fuzz.run import main
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", NAMES)
def test_its_reader_reads_or_refuses_what_is_known(name):
    for data in corpus.seeds(name):
        TARGETS[name](data)


def test_every_input_that_is_kept_is_of_a_target():
    assert {one.name for one in corpus.FOUND.iterdir()} <= set(NAMES)


def test_an_input_is_run_again_by_its_file(tmp_path, capsys):
    path = tmp_path / "input"
    path.write_bytes(b"8")
    assert main(["text", str(path)]) == 0
    path.write_bytes(PLANTED)
    assert main(["planted", str(path)]) == 1
    assert "AssertionError: planted" in capsys.readouterr().err
