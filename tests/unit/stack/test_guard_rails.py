import msgspec
import yaml

from tests.support.golden import assert_golden
from tests.support.guard_rails import STACK
from tests.support.repository import ROOT
from upgrader.api.v1alpha1 import GpuStack
from upgrader.stack.guard_rails import guard_rails, kubelet_setting, taint_command

GOLDEN = ROOT / "tests" / "unit" / "stack" / "golden_guard_rails.yaml"


def stack(**rails):
    body = yaml.safe_load(STACK)
    body["spec"]["guardRails"] = rails or body["spec"]["guardRails"]
    return msgspec.convert(body, GpuStack)


def test_what_is_rendered_is_what_was_read_and_kept():
    assert_golden(GOLDEN, yaml.safe_dump_all(guard_rails(stack()), sort_keys=False, width=110))


def test_they_are_off_until_asked_for():
    off = stack(taint=False)
    assert (guard_rails(off), taint_command(off), kubelet_setting(off)) == ([], "", "")


def test_a_profile_is_for_nodes_with_every_label_of_the_pool():
    (tuned,) = [one for one in guard_rails(stack()) if one["kind"] == "Tuned"]
    assert tuned["spec"]["recommend"][0]["match"] == [
        {"label": "pool", "value": "a", "match": [{"label": "zone", "value": "z1"}]}
    ]
