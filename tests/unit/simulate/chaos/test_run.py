"""What a run counts as failed beside broken laws."""

from msgspec import structs

from upgrader.core.errors import ClusterError
from upgrader.reconcile.isolation import Faults
from upgrader.simulate.chaos import __main__ as chaos
from upgrader.simulate.chaos.run import run, silent


def test_an_error_that_is_none_of_ours_is_kept_and_fails_the_run():
    faults = Faults(kind="UpgradePlan")
    with silent() as unknown:
        faults.note("gang a", ValueError("odd"))
        faults.note("gang b", ClusterError("refused"))
    assert list(unknown.found) == ["gang a: ValueError: odd"]
    outcome = run(1, nodes=1)
    assert not outcome.failed
    assert structs.replace(outcome, unknown=tuple(unknown.found)).failed


def test_a_run_that_raises_ends_no_other(capsys):
    def odd(seed, **_):
        if seed == 1:
            raise ValueError("the world is odd")
        return run(seed, nodes=1)

    assert chaos.main(["--seed", "1", "--runs", "2", "--workers", "1"], odd) == 1
    shown = capsys.readouterr().out
    assert "seed 1: raised an error\nTraceback" in shown
    assert "ValueError: the world is odd" in shown
    assert shown.splitlines()[-1].endswith(" s, 1 broke a law or raised an error")
