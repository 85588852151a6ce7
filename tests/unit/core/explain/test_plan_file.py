import msgspec
import pytest

from tests.support.facts import NEW, gang, image, node, snapshot, target
from upgrader.core.errors import ConfigurationError
from upgrader.core.explain.plan_file import (
    Limits,
    SavedForecast,
    Stale,
    StaleReason,
    check_saved,
    decode_forecast,
    encode_forecast,
    limits_of,
)
from upgrader.core.forecast.forecast import forecast_rollout
from upgrader.core.model.prediction import Prediction
from upgrader.core.model.strategy import StrategyFacts
from upgrader_dev.simulated.cluster.ports import START

STRATEGY = StrategyFacts(max_unavailable="100%")
NODES = [node("a"), node("b"), node("c")]
TRAIN, EVAL = gang("train", ["a", "b"]), gang("eval", ["c"])


def made(nodes=NODES, gangs=(TRAIN,), **changes):
    seen = forecast_rollout(snapshot(nodes, gangs), target(), STRATEGY, now=START)
    facts = {
        "cluster": "uid-cluster",
        "stack": "pool-a",
        "stack_uid": "uid-stack",
        "stack_generation": 3,
        "spec": {"driver": {"vendor": "sim", "version": NEW}},
        "revision": seen.revision,
        "created_at": START,
        "strategy": STRATEGY,
        "limits": limits_of(seen, STRATEGY),
        "images": (image(NEW),),
        "forecast": seen,
    }
    return SavedForecast(**{**facts, **changes})


def stale(reason, message):
    return (Stale(reason=reason, message=message),)


R = StaleReason
TABLE = {
    "the same world": (made(), ()),
    "a job that ended": (made(gangs=[]), ()),
    "a node that left": (made(nodes=NODES[:2]), ()),
    "a gang that lost a member is blocked now": (made(gangs=[gang("train", ["a", "b"], wanted=3)]), ()),
    "another image that is Ready": (made(images=(image("1"), image(NEW))), ()),
    "another cluster": (
        made(cluster="uid-other"),
        stale(R.OTHER_CLUSTER, "It was created for another cluster (uid-cluster, this one is uid-other)."),
    ),
    "a cluster that cannot be told": (
        made(cluster=""),
        stale(R.OTHER_CLUSTER, "It was created for another cluster (uid-cluster, this one is not known)."),
    ),
    "another stack": (
        made(stack="pool-b"),
        stale(R.OTHER_STACK, "It was created for stack pool-a (uid-stack), this one is pool-b (uid-stack)."),
    ),
    "a stack that was made again under its name": (
        made(stack_uid="uid-again"),
        stale(R.OTHER_STACK, "It was created for stack pool-a (uid-stack), this one is pool-a (uid-again)."),
    ),
    "a stack that was edited": (
        made(stack_generation=4),
        stale(R.STACK_CHANGED, "Stack pool-a was edited since: generation 3 then, 4 now."),
    ),
    "another revision": (
        made(revision="0123456789"),
        stale(
            R.OTHER_REVISION,
            f"It leads to revision {target().revision}, a new forecast leads to 0123456789.",
        ),
    ),
    "an image that is gone": (
        made(images=()),
        stale(R.IMAGE_GONE, f"Driver image {image(NEW).digest} (570.10 on 6.1.0-40-amd64) is no longer Ready."),
    ),
    "a gang that was not there": (
        made(gangs=[TRAIN, EVAL]),
        (
            *stale(R.OTHER_GANG, "ml/Job/eval would be stopped, but not in the saved forecast."),
            *stale(R.MORE_INTERRUPTIONS, "2 gangs would be stopped; the limit is 1."),
            *stale(R.MORE_LOSS, "4.9 GPU-hours would be lost; the limit is 4.0."),
        ),
    ),
    "another gang in the place of one that ended": (
        made(gangs=[EVAL]),
        stale(R.OTHER_GANG, "ml/Job/eval would be stopped, but not in the saved forecast."),
    ),
}


def losing(gpu_hours):
    """The same forecast, with another prediction of what is lost."""
    seen = made().forecast
    return msgspec.structs.replace(seen, prediction=Prediction(lost_gpu_hours=gpu_hours))


class TestLoss:
    AGREED = made(forecast=losing(12.34), limits=limits_of(losing(12.34), STRATEGY))

    def test_agreed_is_what_is_shown(self):
        assert self.AGREED.limits.max_lost_gpu_hours == 12.4

    def test_as_much_as_agreed(self):
        assert check_saved(self.AGREED, made(forecast=losing(12.4))) == ()

    def test_more_is_stale(self):
        assert check_saved(self.AGREED, made(forecast=losing(12.41))) == stale(
            R.MORE_LOSS, "12.5 GPU-hours would be lost; the limit is 12.4."
        )

    def test_a_file_of_an_older_release_agreed_to_any(self):
        before = msgspec.structs.replace(self.AGREED.limits, max_lost_gpu_hours=None)
        assert check_saved(made(limits=before), made(forecast=losing(1000))) == ()


@pytest.mark.parametrize(("fresh", "reasons"), TABLE.values(), ids=TABLE.keys())
def test_whether_it_still_holds(fresh, reasons):
    assert check_saved(made(), fresh) == reasons


def test_agreeing_to_a_forecast_agrees_to_its_interruptions():
    limits = msgspec.structs.replace(made().limits, max_lost_gpu_hours=None)
    assert limits == Limits(max_interruptions=1, gangs=("ml/Job/train",), placement_unguaranteed=False)


def test_a_file_comes_back_as_it_was():
    raw = encode_forecast(made())
    assert decode_forecast(raw, "x.json") == made()
    assert raw.endswith(b"}\n")
    assert encode_forecast(decode_forecast(raw, "x.json")) == raw


BAD = {
    "nothing": b"",
    "no JSON": b"apiVersion: v1\n",
    "something else": b'{"kind": "Pod"}',
    "with a field that we do not know": encode_forecast(made())[:-2] + b', "more": 1}',
    "of the wrong type": encode_forecast(made()).replace(b'"stack_generation": 3', b'"stack_generation": "3"'),
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD.keys())
def test_what_is_no_saved_forecast(raw):
    with pytest.raises(ConfigurationError) as error:
        decode_forecast(raw, "x.json")
    assert error.value.brief == "x.json contains no saved forecast"
    assert error.value.resolution == "Create a new one with `upgrader plan -o FILE`."


def test_another_format_is_told_by_name():
    with pytest.raises(ConfigurationError) as error:
        decode_forecast(
            encode_forecast(msgspec.structs.replace(made(), format="gpu-upgrader.io/forecast.v9")), "x.json"
        )
    read = "this release reads gpu-upgrader.io/forecast.v1"
    assert error.value.brief == f"x.json has format gpu-upgrader.io/forecast.v9, {read}"
