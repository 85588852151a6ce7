import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from upgrader.images.debian import versions
from upgrader.process import run

_WORD = st.text(alphabet="019aZ+.~", max_size=6)
_REVISION = st.text(alphabet="01aZ+.~", min_size=1, max_size=4)


@st.composite
def debian_versions(draw):
    epoch = draw(st.sampled_from(["", "", "0:", "1:"]))
    revision = draw(st.one_of(st.just(""), _REVISION.map(lambda text: f"-{text}")))
    return f"{epoch}{draw(st.sampled_from('0189'))}{draw(_WORD)}{revision}"


def dpkg_says(one, relation, other):
    return run(["dpkg", "--compare-versions", one, relation, other], timeout=10, check=False).code == 0


@given(debian_versions(), debian_versions())
@example("0~", "0")
@example("0~-1", "0")
@example("1-0", "1")
def test_versions_are_in_the_order_that_dpkg_has(one, other):
    first, second = versions.sort_key(one), versions.sort_key(other)
    assert (first < second, first == second) == (dpkg_says(one, "lt", other), dpkg_says(one, "eq", other))


@pytest.mark.parametrize(
    ("version", "upstream"),
    [
        ("535.261.03-1~deb12u1", "535.261.03"),
        ("550.163.01-4~bpo13+1", "550.163.01"),
        ("1:2.0-rc-1", "2.0-rc"),
        ("7.2", "7.2"),
    ],
)
def test_the_authors_version(version, upstream):
    assert versions.upstream_version(version) == upstream


@pytest.mark.parametrize(
    ("operator", "met"),
    [
        ("<<", [True, False, False]),
        ("<=", [True, True, False]),
        ("=", [False, True, False]),
        (">=", [False, True, True]),
        (">>", [False, False, True]),
    ],
)
def test_dependencies_on_a_version(operator, met):
    offered = ["6.1.170-3", "6.1.176-1", "6.1.192-2"]
    assert [versions.satisfies_dependency(one, operator, "6.1.176-1") for one in offered] == met
