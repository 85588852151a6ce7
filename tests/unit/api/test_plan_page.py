"""docs/reference/plan-json.md and its schema say what `--output json` gives, no less and no more."""

import json
import re

import msgspec
import pytest
from msgspec import Struct

from tests.support.facts import gang, node, snapshot, target
from tests.support.repository import ROOT
from upgrader.api import plan_page
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.explain.node_explanation import Explanation
from upgrader.core.explain.plan_file import SavedForecast, limits_of
from upgrader.core.explain.source_revisions import find_origins
from upgrader.core.forecast.forecast import forecast_rollout
from upgrader.core.model.prediction import Completion, Durations, Interruption, Prediction
from upgrader.core.model.strategy import StrategyFacts, TopologyBudget, Window
from upgrader_dev.simulated.cluster.ports import START


def full() -> SavedForecast:
    """A forecast with at least one entry in every list."""
    pace = StrategyFacts(
        max_unavailable=100, topology=(TopologyBudget(key="rack", max_unavailable=8),), windows=(Window(),)
    )
    nodes = [node("a"), node("b"), node("c", skip=True)]
    world = snapshot(nodes, [gang("train", ["a"])])
    made = forecast_rollout(world, target(), StrategyFacts(max_unavailable="100%"), now=START)
    lost = Interruption(gang="g", gpus=8, asked_at=START, seconds=1, lost_gpu_hours=1.0, because="x")
    made = msgspec.structs.replace(
        made,
        completions=(Completion(nodes=("a",), gangs=("g",), at=START),),
        prediction=Prediction(interruptions=(lost,), durations=Durations()),
    )
    return SavedForecast(
        cluster="u",
        stack="pool-a",
        stack_uid="u",
        stack_generation=1,
        spec={},
        revision=made.revision,
        created_at=START,
        strategy=pace,
        limits=limits_of(made, pace),
        images=world.images,
        forecast=made,
        origins=find_origins(nodes, {nodes[0].revision: target("1.0")}, target()),
    )


def paths(value, at=""):
    """Every path of a JSON value, as the page writes them."""
    if isinstance(value, dict):
        for name, part in value.items():
            many = "[]" * (isinstance(part, list) and not _numbers(part))
            yield f"{at}{name}{many}"
            yield from paths(part, f"{at}{name}{many}.")
    elif isinstance(value, list):
        for part in value:
            yield from paths(part, at)


def _numbers(part):
    """A pair of median and 95th percentile."""
    return len(part) == 2 and all(isinstance(one, int) for one in part)


def documented(section):
    page = (ROOT / "docs/reference/plan-json.md").read_text()
    body = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return {
        path: tuple(rest.split(" | ")[:2]) for path, rest in re.findall(r"^\| `(.+?)` \| (.+) \|$", body, re.MULTILINE)
    }


class TestThePage:
    @pytest.mark.parametrize(
        ("section", "value"),
        [
            ("plan", full()),
            ("why", Explanation(subject="a", verdict="b", because=("c",))),
            ("doctor", Advice(subject="a", check="b", severity=Severity.OK, message="c")),
        ],
    )
    def test_it_names_what_is_really_there(self, section, value):
        assert set(documented(section)) == set(paths(json.loads(msgspec.json.encode(value))))

    def test_types_and_units(self):
        said = documented("plan")
        assert said["forecast.batches[].seconds"] == ("integer", "s")
        assert said["forecast.batches[].starts_at"] == ("time or null", "")
        assert said["forecast.batches[].groups[].gpus"] == ("integer", "GPUs")
        assert said["forecast.batches[].kind"] == ("one of `Canary`, `Idle`, `Asked`", "")
        assert said["forecast.prediction.lost_gpu_hours"] == ("number", "GPU-hours")
        assert said["forecast.prediction.durations.upgrade"] == ("list of 2: integer, integer", "s")
        assert said["strategy.max_unavailable"] == ("integer or string", "")
        assert said["forecast.blockers[].nodes[]"] == ("list of string", "")

    def test_a_field_that_says_nothing_stops_the_generator(self):
        with pytest.raises(LookupError, match="silent has no comment"):
            list(plan_page.field_rows(Bare))

    def test_comments_are_those_behind_fields(self):
        assert plan_page.field_comments(Said) == {"silent": "it speaks", "other": "a # in it"}


class Bare(Struct):
    silent: str


class Said(Struct):
    silent: str  # it speaks
    # no field
    other: str = "#"  # a # in it


class TestTheSchema:
    def test_it_knows_every_field(self):
        made = json.loads((ROOT / "docs/reference/plan.schema.json").read_text())
        known = {name for part in made["$defs"].values() for name in part.get("properties", {})}
        assert {path.rpartition(".")[2].removesuffix("[]") for path in documented("plan")} <= known
        assert made["$ref"] == "#/$defs/SavedForecast"

    def test_a_saved_forecast_may_have_no_other_field(self):
        made = json.loads(plan_page.plan_schema())
        assert made["$defs"]["SavedForecast"]["additionalProperties"] is False
