"""What a build pod says last: whole where it fits, and never more than a kubelet reads."""

from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.driver_build.build_results import (
    MESSAGE_BYTES,
    BuildRefusal,
    BuildResult,
    CellState,
    is_settled,
    read_message,
    termination_message,
)
from upgrader.core.driver_build.driver_builds import BuildFailure, CheckName, FailureClass, Identity, Verdict

IDENTITY = Identity(vendor="sim", recipe="fakebridge", driver="1", kernel="6.1.0-50-amd64", os="bookworm")
TEXTS = st.text(max_size=6000)


def red(first_error: str, symbol: str, reasons: list[str]) -> BuildResult:
    """A failed build with as many checks as there are reasons."""
    checks = tuple(
        Verdict(check=CheckName.CRC, passed=number % 2 == 0, reason=reason, symbols=(symbol,) * 9)
        for number, reason in enumerate(reasons)
    )
    failure = BuildFailure(kind=FailureClass.CRC, first_error=first_error, symbol=symbol)
    return BuildResult(identity=IDENTITY, state=CellState.RED, build_key="a" * 64, checks=checks, failure=failure)


def test_what_fits_is_handed_on_whole():
    result = red("disagrees about version", "module_layout", ["equal", "differs"])
    assert read_message(termination_message(result).decode()) == result


@given(TEXTS, TEXTS, st.lists(TEXTS, max_size=12))
def test_it_is_never_longer_than_a_kubelet_reads_and_says_what_failed(error, symbol, reasons):
    result = red(error, symbol, reasons)
    said = termination_message(result)
    assert len(said) <= MESSAGE_BYTES
    read = read_message(said.decode())
    assert read is not None
    assert (read.identity, read.state, read.build_key) == (IDENTITY, CellState.RED, "a" * 64)
    assert read.failure is not None
    assert read.failure.kind is FailureClass.CRC


@given(st.sampled_from(FailureClass), TEXTS, TEXTS)
def test_why_no_build_was_begun_fits_as_well(kind, error, symbol):
    refusal = BuildRefusal(failure=BuildFailure(kind=kind, first_error=error, symbol=symbol))
    said = termination_message(refusal)
    assert len(said) <= MESSAGE_BYTES
    read = read_message(said.decode())
    assert isinstance(read, BuildRefusal)
    assert read.failure.kind is kind
    assert len(error) > 160 or read.failure.first_error == error


def test_a_refusal_that_may_pass_is_no_end():
    """A signature, or the right key, may come under the same digest."""
    ends = {kind for kind in FailureClass if BuildRefusal(failure=BuildFailure(kind=kind, first_error="x")).final}
    assert ends == set(FailureClass) - {FailureClass.TRANSIENT, FailureClass.PUSH, FailureClass.SIGNATURE}


def test_other_words_are_no_result():
    assert [read_message(text) for text in ("", "panic: out of memory", "{}", '{"state": "green"}')] == [None] * 4


def test_only_a_red_cell_that_would_be_red_again_is_settled():
    """An image that was built and could not be published is not, whatever the registry or the verifier said."""
    kinds = list(FailureClass)
    cells = {kind: BuildFailure(kind=kind, first_error="x") for kind in kinds}
    alone = {kind for kind in kinds if is_settled(_with(cells[kind], ""))}
    assert alone == set(kinds) - {FailureClass.TRANSIENT, FailureClass.PUSH}
    assert not any(is_settled(_with(cells[kind], "sha256:" + "a" * 64)) for kind in kinds)
    assert is_settled(_with(None, "sha256:" + "a" * 64))


def _with(failure: BuildFailure | None, digest: str) -> BuildResult:
    state = CellState.RED if failure else CellState.GREEN
    return BuildResult(identity=IDENTITY, state=state, failure=failure, digest=digest)
