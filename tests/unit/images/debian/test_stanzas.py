import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.images.debian import stanzas as reading
from upgrader.images.debian.apt import Index
from upgrader.images.debian.stanzas import read_stanzas

TEXT = """Package: one
Version: 1
Description: first
 more of it
 .
 Package: none

Package: two
Version: 2

Version: 3
Package: three
"""
ONE, TWO = {"Package": "one", "Version": "1", "Description": "first"}, {"Package": "two", "Version": "2"}
THREE = {"Version": "3", "Package": "three"}


def index(path):
    return Index(suite="trixie", component="main", path=path)


def written(folder, text, suffix=""):
    path = folder / f"Packages{suffix}"
    path.write_bytes(lzma.compress(text.encode()) if suffix else text.encode())
    return index(path)


@pytest.mark.parametrize("suffix", ["", ".xz"])
def test_stanzas_whose_name_is_wanted(tmp_path, suffix):
    assert list(read_stanzas(written(tmp_path, TEXT, suffix), lambda _name: True)) == [ONE, TWO, THREE]
    assert list(read_stanzas(written(tmp_path, TEXT, suffix), {"two", "three"}.__contains__)) == [TWO, THREE]


@pytest.mark.parametrize(
    "text", [TEXT.rstrip("\n"), TEXT + "\n", TEXT + "\n\n", "\n" + TEXT, TEXT.replace("\n\n", "\n\n\n")]
)
def test_blank_lines_too_many_or_too_few(tmp_path, text):
    assert list(read_stanzas(written(tmp_path, text), lambda _name: True)) == [ONE, TWO, THREE]


def test_nothing_in_an_empty_list(tmp_path):
    assert list(read_stanzas(written(tmp_path, ""), lambda _name: True)) == []


@given(size=st.integers(1, 60))
def test_it_makes_no_difference_where_a_piece_of_the_file_ends(tmp_path_factory, size):
    whole = written(tmp_path_factory.mktemp("lists"), TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_CHUNK", size)
        assert list(read_stanzas(whole, lambda _name: True)) == [ONE, TWO, THREE]
