"""What a run counts as failed beside broken laws."""

from upgrader.api.resources import GPU_STACKS, NODE_UPGRADES
from upgrader.core.errors import ClusterError
from upgrader.reconcile.runtime.isolation import Faults
from upgrader_dev.chaos import __main__ as chaos
from upgrader_dev.chaos.run import ChaosRun, play_run, without_logs


def test_an_unexpected_error_is_kept_and_fails_the_run():
    faults = Faults(kind="UpgradePlan")
    with without_logs() as unknown:
        faults.record_error("gang a", ValueError("odd"))
        faults.record_error("gang b", ClusterError("refused"))
    assert list(unknown.errors) == ["gang a: ValueError: odd"]


class Odd(ChaosRun):
    """A world in which an unexpected error ends a step, and another one is met in a step."""

    def __init__(self, seed, **settings):
        super().__init__(seed, **settings)
        listed, left = self.cluster.list, {GPU_STACKS: "stacks", NODE_UPGRADES: "upgrades"}

        async def list_oddly(kind, *arguments, **selectors):
            if self.seconds > 60 and kind in left:
                raise ValueError(f"odd {left.pop(kind)}")
            return await listed(kind, *arguments, **selectors)

        self.cluster.list = list_oddly


def test_a_run_fails_where_a_step_fails_for_a_reason_that_nobody_knows():
    assert not play_run(1, nodes=1).failed
    outcome = play_run(1, nodes=1, world_of=Odd)
    assert outcome.failed
    assert {each.rpartition(": ")[2] for each in outcome.unknown} == {"odd stacks", "odd upgrades"}
    assert "step failed for an unknown reason" in str(outcome)


def test_a_run_that_raises_ends_no_other(capsys):
    def odd(seed, **_):
        if seed == 1:
            raise ValueError("the world is odd")
        return play_run(seed, nodes=1)

    assert chaos.main(["--seed", "1", "--runs", "2", "--workers", "1"], odd) == 1
    shown = capsys.readouterr().out
    assert "seed 1: raised an error\nTraceback" in shown
    assert "ValueError: the world is odd" in shown
    assert shown.splitlines()[-1].endswith(" s, 1 broke a law or raised an error")
