"""Which events wake whom; and that kopf is given nothing by which it would write."""

import kopf
import pytest
from kopf._core.intents import registries

from upgrader.controller import rim
from upgrader.kube.connect import Access
from upgrader.reconcile.runtime.waking import SOON


class Woken:
    def __init__(self):
        self.calls = []

    def wake(self, kind, name, within=0.0):
        self.calls.append((kind, name, within) if within else (kind, name))

    def wake_all(self, kind, within=0.0):
        self.calls.append((kind, "*", within) if within else (kind, "*"))


class Connected:
    async def access(self):
        return Access(server="https://127.0.0.1:1")


def body(name, **spec):
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "of", "woken"),
    [
        ("GpuStack", body("s"), [("GpuStack", "s"), ("UpgradePlan", "*")]),
        (
            "UpgradePlan",
            body("p", stack="s"),
            [("UpgradePlan", "p"), ("GpuStack", "s", SOON), ("UpgradePlan", "*", SOON)],
        ),
        ("DriverImage", body("i"), [("DriverImage", "i"), ("GpuStack", "*"), ("UpgradePlan", "*")]),
        ("NodeUpgrade", body("v", plan="p", stack="s"), [("UpgradePlan", "p")]),
        ("NodeUpgrade", body("v", stack="s"), [("GpuStack", "s")]),
        ("CheckpointRequest", body("r", plan="p"), [("UpgradePlan", "p")]),
        ("CheckpointRequest", body("r"), []),
    ],
)
def test_who_is_woken(kind, of, woken):
    seen = Woken()
    rim.passed_on(seen, kind, of)
    assert seen.calls == woken


def test_only_our_kinds_are_watched_and_only_by_handlers_that_patch_nothing():
    made = rim.create_registry(Woken(), Connected())
    watching = made._watching.get_all_handlers()
    assert {handler.id for handler in watching} == {kind.kind for kind in rim.WATCHED}
    assert made._spawning.get_all_handlers() == []
    assert made._changing.get_all_handlers() == []
    assert made._indexing.get_all_handlers() == []
    assert isinstance(made, registries.OperatorRegistry)


def test_kopf_posts_no_events_and_scans_nothing():
    made = rim.create_settings()
    assert (made.posting.enabled, made.scanning.disabled) == (False, True)
    assert made.process.ultimate_exiting_timeout is None
    assert None not in {made.watching.server_timeout, made.watching.client_timeout, made.watching.connect_timeout}
    assert isinstance(made, kopf.OperatorSettings)
