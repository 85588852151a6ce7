"""Options as a strategy: each in its forms, and what is none."""

from datetime import UTC, datetime, timedelta

import click
import msgspec
import pytest
from click.testing import CliRunner

from tests.support.facts import gang, node, snapshot
from tests.support.manifests import changed, upgrade_plan
from upgrader.api.v1alpha1 import UpgradePlan
from upgrader.cli.plan import pace_parser, pace_screen
from upgrader.cli.plan.pace_options import pace_options
from upgrader.core.errors import ConfigurationError
from upgrader.core.model.phases import OnFailure
from upgrader.core.model.strategy import StrategyFacts, TopologyBudget, Window
from upgrader.core.model.validation import ValidationLevel
from upgrader.reconcile.facts.strategies import strategy_of, strategy_spec
from upgrader_dev.simulated.cluster.ports import START


def asked(*words):
    """The strategy of a command line; errors as the program's own."""
    found = []

    @click.command()
    @pace_options
    def command(pace):
        found.append(pace_parser.parse_strategy(pace, START))

    ended = CliRunner().invoke(command, list(words))
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    assert ended.exit_code == 0, ended.output
    return found[0]


def test_nothing_said_is_the_strategy_that_plans_have_by_themselves():
    plan = msgspec.convert(upgrade_plan(), UpgradePlan)
    assert asked() == strategy_of(plan, START)


def test_everything_said():
    made = asked(
        "--max-unavailable", "64", "--topology-budget", "example.com/rack=16", "--topology-budget", "zone=50%",
        "--min-available-gpus", "8", "--canary", "--soak", "1h30m", "--wait-for-completion", "2h", "--deadline", "1d",
        "--window", "Mon-Fri 22:00-06:00 Europe/Berlin", "--window", "sat,Sun 00:00-24:00", "--lanes", "2",
        "--checkpoint-timeout", "10m", "--checkpoint-method", "file",
        "--expendable", "a", "--wait-for", "b", "--allow-unguaranteed-placement",
        "--on-failure", "Rollback",
    )  # fmt: skip
    assert made == StrategyFacts(
        max_unavailable=64,
        topology=(
            TopologyBudget(key="example.com/rack", max_unavailable=16),
            TopologyBudget(key="zone", max_unavailable="50%"),
        ),
        min_available_gpus=8,
        canary=True,
        soak_seconds=5400,
        completion_until=START + timedelta(hours=2),
        deadline=START + timedelta(days=1),
        windows=(
            Window(days=("Mon", "Tue", "Wed", "Thu", "Fri"), start="22:00", end="06:00", time_zone="Europe/Berlin"),
            Window(days=("Sat", "Sun"), start="00:00", end="00:00", time_zone="UTC"),
        ),
        lane_width=2,
        checkpoint_seconds=600,
        checkpoint_method="file",
        expendable=("a",),
        wait_for=("b",),
        placement_unguaranteed=True,
        on_failure=OnFailure.ROLLBACK,
    )
    assert "\n".join(pace_screen.strategy_sentences(made, START)) == (
        "At most 16 per example.com/rack, 50% per zone.\n"
        "At least 8 GPUs stay in service.\n"
        "Canaries: one idle node of each class first, then a soak of 1h 30m.\n"
        "Wait for completion of jobs that end before 11:00 (+2h).\n"
        "Batches start only Mon,Tue,Wed,Thu,Fri 22:00-06:00 Europe/Berlin or Sat,Sun 00:00-00:00 UTC.\n"
        "Deadline: no batch starts that would end after Sun 22 Nov 09:00 (+1d).\n"
        "At most 2 gangs write checkpoints to one storage at the same time.\n"
        "Checkpoint methods of jobs that declare none: file.\n"
        "Waited for instead of evicted: b.\n"
        "When more nodes or gangs fail than are tolerated, the nodes are rolled back to the previous revision."
    )


def test_levels_of_validation():
    assert asked().validation_levels == {"spec.strategy.validation": ValidationLevel.DEVICES}
    deeper = asked("--validation", "AllReduce", "--canary-validation", "Diagnostics", "--wait-for-completion", "0s")
    assert deeper.validation_levels == {
        "spec.strategy.validation": ValidationLevel.ALL_REDUCE,
        "spec.strategy.canary.validation": ValidationLevel.DIAGNOSTICS,
    }
    assert pace_screen.strategy_sentences(deeper, START)[-2:] == [
        "Validation of canaries: checks of devices, an all-reduce over all GPUs, and diagnostics.",
        "Validation of each node: checks of devices and an all-reduce over all GPUs.",
    ]
    without = asked("--no-canary", "--canary-validation", "Diagnostics")
    assert without.validation_levels == {"spec.strategy.validation": ValidationLevel.DEVICES}
    manifest = changed(upgrade_plan(), "spec.strategy", strategy_spec(deeper, START))
    assert strategy_of(msgspec.convert(manifest, UpgradePlan), START).validation_levels == deeper.validation_levels


def test_a_deadline_as_a_time():
    assert asked("--deadline", "2026-11-22T06:00:00+01:00").deadline == datetime(2026, 11, 22, 5, tzinfo=UTC)


def test_a_window_over_the_end_of_the_week():
    assert pace_parser.parse_window("Sat-Mon 01:00-02:00").days == ("Mon", "Sat", "Sun")


@pytest.mark.parametrize("text", ["daily 22:00-06:00 UTC", "Mon,Wed 08:30-09:00 Europe/Berlin"])
def test_a_window_is_shown_as_it_is_read(text):
    assert pace_parser.shown_window(pace_parser.parse_window(text)) == text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--max-unavailable", "0"), "must be a number of GPUs"),
        (("--topology-budget", "16"), "must be LABEL=GPUS"),
        (("--topology-budget", "rack=none"), "--topology-budget rack none: must be a number"),
        (("--soak", "soon"), "--soak soon: must be a duration"),
        (("--wait-for-completion", "never"), "--wait-for-completion never: must be a duration"),
        (("--window", "at night"), "'at night' is not valid"),
        (("--window", "Mon 22:00-25:00"), "is not valid"),
        (("--window", "Mon-Fry 22:00-23:00"), "Mon-Fry is not a day"),
        (("--window", "Mon 22:00-23:00 Europe/Nowhere"), "time zone Europe/Nowhere not found"),
        (("--window", "Mon 22:00-23:00 ../etc"), "time zone ../etc not found"),
        (("--checkpoint-method", "file,telepathy"), "telepathy: must be one of file, exec"),
        (("--deadline", "tomorrow"), "must be a duration such as 8h or a time"),
        (("--deadline", "2026-11-22T06:00:00"), "must be a duration such as 8h or a time"),
        (("--deadline", "2026-11-21T08:59:59Z"), "must be at least one minute in the future"),
    ],
)
def test_what_cannot_be_understood(words, said):
    with pytest.raises(ConfigurationError, match=said.replace("(", r"\(")):
        asked(*words)


class TestNames:
    WORLD = snapshot(
        [node("a"), node("b")], [gang("train", ["a"]), gang("train", ["b"], name="dev/Job/train", namespace="dev")]
    )

    def test_jobs_are_named_in_full_afterwards(self):
        wish = StrategyFacts(expendable=("ml/train",), wait_for=("dev/Job/train",))
        found = pace_parser.resolve_gang_names(wish, self.WORLD)
        assert found == StrategyFacts(expendable=("ml/Job/train",), wait_for=("dev/Job/train",))

    @pytest.mark.parametrize(
        ("name", "said"),
        [("ml/trian", "gang not found on the nodes"), ("train", "ambiguous name: dev/Job/train or ml/Job/train")],
    )
    def test_a_slip_of_the_pen_agrees_to_nothing(self, name, said):
        with pytest.raises(ConfigurationError, match=said):
            pace_parser.resolve_gang_names(StrategyFacts(expendable=(name,)), self.WORLD)
