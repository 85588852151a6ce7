"""A whole rollout, with a driver image that the cluster builds: no secret of it is seen anywhere else."""

import base64
import json
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from tests.support import image_rig
from tests.support.building import build_ends
from tests.support.image_rig import IDENTITY, NAMED
from tests.support.secrets import Secrets, programs
from upgrader.api.kubernetes import Unread
from upgrader.api.resources import JOBS, ResourceKind
from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.model.phases import PlanPhase
from upgrader.telemetry import metrics
from upgrader_dev.simulated.cluster.fleet import trainer_spec
from upgrader_dev.simulated.cluster.ports import FakeTrust
from upgrader_dev.simulated.cluster.rig import Rig

SYSTEM = "gpu-upgrader-system"
SECRETS = ResourceKind(group="", version="v1", kind="Secret", plural="secrets", namespaced=True, type=Unread)
BUILDS = msgspec.structs.replace(
    image_rig.BUILDS, signing="image-signing", module_signing="module-signing", push_auth="registry"
)


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture
def rig() -> Rig:
    rig = image_rig.make()
    rig.builds = BUILDS
    rig.trust = FakeTrust()
    return rig


def put_secrets(rig: Rig, secrets: Secrets) -> None:
    """What people put into a cluster for builds, and jobs for themselves."""
    kept = {
        (SYSTEM, "image-signing"): ("cosign.key", "cosign.password"),
        (SYSTEM, "module-signing"): ("tls.key", "passphrase"),
        (SYSTEM, "registry"): (".dockerconfigjson",),
        ("default", "tracking"): ("API_KEY",),
        ("default", "pull"): (".dockerconfigjson",),
    }
    for (namespace, name), keys in kept.items():
        data = {key: secrets.make(f"{name} {key}") for key in keys}
        rig.cluster.store.put(SECRETS, {"metadata": {"name": name, "namespace": namespace}, "stringData": data})


def trainer_with_secrets(secrets: Secrets) -> dict[str, Any]:
    """As jobs carry them: by reference, and (as they should not) as they are."""
    spec = trainer_spec(8)
    container = spec["containers"][0]
    container["env"] = [
        *container.get("env", []),
        {"name": "WANDB_API_KEY", "value": secrets.make("variable of a job")},
        {"name": "TRACKING", "valueFrom": {"secretKeyRef": {"name": "tracking", "key": "API_KEY"}}},
    ]
    container["args"] = ["--hub-token", secrets.make("argument of a job")]
    return spec | {"imagePullSecrets": [{"name": "pull"}]}


async def training(rig: Rig, secrets: Secrets) -> str:
    """A pool on driver 1.0 with a gang that trains; gives the revision of the next driver."""
    for node in ("gpu-0", "gpu-1"):
        rig.fleet.add_node(node)
    rig.put_image("1.0")
    rig.put_image("2.0")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    rig.fleet.add_job("gang", members=2, template=trainer_with_secrets(secrets))
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > 10)
    return rig.apply_stack(rig.make_spec("2.0", plugin="2", kubelet="1.35.4"))


def seen(rig: Rig) -> str:
    """Everything that can be read in the cluster without the right to read Secrets or the jobs' own specs."""
    objects = []
    for stored in rig.cluster.store.all_objects():
        body = stored.value
        if body.get("kind") == "Secret" or "stringData" in body:
            continue
        others = body["metadata"].get("namespace") == "default"
        objects.append({key: value for key, value in body.items() if not (others and key == "spec")})
    return json.dumps([objects, msgspec.to_builtins(rig.cluster.events), msgspec.to_builtins(rig.cluster.writes)])


async def test_a_rollout_shows_no_secret(rig: Rig, secrets: Secrets, capsys, caplog) -> None:
    put_secrets(rig, secrets)
    with programs() as started, caplog.at_level("DEBUG"):
        revision = await training(rig, secrets)
        image_rig.wanted(rig)
        for _ in range(3):
            await rig.run_second()
        pinned = rig.registry.push(NAMED, "ab")
        build_ends(rig, BuildResult(identity=IDENTITY, state=CellState.GREEN, build_key="c" * 64, digest=pinned))
        rig.apply_plan("up", revision)
        await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert rig.fleet.trainers["gang"].stops == 2
    assert {event.reason for event in rig.cluster.events} != set()
    out, err = capsys.readouterr()
    places = {
        "objects and Events": seen(rig),
        "logs": out + err + caplog.text,
        "metrics": generate_latest(metrics.REGISTRY).decode(),
        "arguments": "\n".join(started),
        "what a person is shown": rig.describe_state(),
    }
    assert {place: found for place, text in places.items() if (found := secrets.shown_in(text))} == {}
    assert [use for use in rig.cluster.uses if use.resource.startswith("secrets")] == []


async def test_a_build_is_given_its_secrets_by_name_only(rig: Rig, secrets: Secrets) -> None:
    put_secrets(rig, secrets)
    image_rig.wanted(rig)
    for _ in range(3):
        await image_rig.look(rig)
    (job,) = rig.cluster.store.copy_all(JOBS)
    text = json.dumps(job)
    assert all(name in text for name in ("image-signing", "module-signing", "registry"))
    assert secrets.shown_in(seen(rig)) == []


def test_what_gives_a_secret_away_is_found(secrets: Secrets) -> None:
    """The tests here would else pass whatever happened."""
    password = secrets.make("password")
    assert secrets.shown_in(f"--password {password}") == ["password"]
    assert secrets.shown_in("Basic " + base64.b64encode(password.encode()).decode()) == ["password"]
    assert secrets.shown_in("--password ***") == []
