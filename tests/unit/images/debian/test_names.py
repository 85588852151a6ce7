from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.images.debian import names
from upgrader.images.debian.names import HostileNameError

CHECKS = [
    names.check_package,
    names.check_version,
    names.check_release,
    names.check_suite,
    names.check_component,
    names.check_arch,
    names.check_path,
    names.check_sha256,
]
METACHARACTERS = " \t\n\r\0'\"`$&|;<>(){}[]*?!#\\%=,@^é"
HARMFUL = st.text(alphabet=st.sampled_from(METACHARACTERS), min_size=1)
ANYTHING = st.one_of(st.text(), st.from_regex(r"[A-Za-z0-9+.~_/:-]*", fullmatch=True))


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (names.check_package, "linux-headers-6.12.115+deb13.1-amd64"),
        (names.check_version, "1:535.261.03-1~deb12u1+b2"),
        (names.check_release, "6.12.115+deb13.1-cloud-amd64"),
        (names.check_suite, "bookworm-security"),
        (names.check_component, "non-free-firmware"),
        (names.check_arch, "amd64"),
        (names.check_path, "pool/updates/main/l/linux/linux-headers-6.12.107+deb13-amd64_6.12.107-1~bpo13+1_amd64.deb"),
        (names.check_sha256, "0" * 64),
    ],
)
def test_what_debian_really_has_is_taken_as_it_is(check, text):
    assert check(text) == text


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    "text", ["", "-x", "--help", ".", "..", "../x", "/etc/passwd", "a//b", "a/../b", "a/.b", "a\n"]
)
def test_flags_and_ways_out_of_a_folder_are_refused(check, text):
    with pytest.raises(HostileNameError):
        check(text)


@given(before=st.text(alphabet="abc123.+"), harm=HARMFUL, after=st.text(alphabet="abc123.+"))
def test_no_metacharacter_passes_wherever_it_stands(before, harm, after):
    for check in CHECKS:
        with pytest.raises(HostileNameError):
            check(before + harm + after)


@given(ANYTHING)
def test_what_passes_is_one_plain_word(text):
    for check in CHECKS:
        try:
            check(text)
        except HostileNameError:
            continue
        assert text.isascii()
        assert not text.startswith(("-", ".", "/"))
        assert not set(text) & set(METACHARACTERS)
        assert len(text.splitlines()) == len(text.split()) == 1


@given(st.lists(st.one_of(st.sampled_from(["pool", "..", ".", "", "~", "a~", "x+1_amd64.deb"]), st.text()), min_size=2))
def test_a_path_that_passes_stays_below_its_folder(parts):
    text = "/".join(parts)
    try:
        names.check_path(text)
    except HostileNameError:
        return
    folder = Path("/srv/mirror")
    assert (folder / text).resolve().is_relative_to(folder)
    assert str(folder / text) == f"{folder}/{text}"


def test_a_name_as_long_as_a_path_is_refused_and_not_shown_whole():
    with pytest.raises(HostileNameError) as refused:
        names.check_release("6" * 10_000)
    assert len(str(refused.value)) < 300
