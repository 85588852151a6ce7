"""The generated definitions on a real API server: what is valid is stored, every rule refuses with its sentence."""

import json
import uuid

import pytest
from kubernetes.aio import config

from tests.support import manifests as m
from tests.support.manifests import changed
from tests.support.repository import documented_manifests
from upgrader.api.kinds import KINDS
from upgrader.core.errors import ConfigurationError

pytestmark = [pytest.mark.cluster, pytest.mark.gate]

BY_KIND = {kind.resource.kind: kind for kind in KINDS}
VALID = (m.gpu_stack(), m.upgrade_plan(), m.node_upgrade(), m.checkpoint_request(), m.driver_image())
MANAGED = changed(m.gpu_stack(), "spec.kubelet", {"manage": True, "version": "1.35.4", "artifact": "r/kubelet:1"})
ABORTING = changed(m.upgrade_plan(), "spec.state", "Aborted")

IDENTITY = {"vendor": "nvidia", "recipe": "nvidia-open", "flavour": "open", "os": "bookworm"}
NVIDIA = m.driver_image() | {"spec": {**IDENTITY, "version": "535.261.03", "kernel": "6.1.0-50-amd64"}}
PINNED = m.driver_image() | {"status": {"phase": "Ready", "digest": "r/driver@sha256:" + "0" * 64}}
FORCE = {"step": "Draining", "by": "ann", "at": "2026-11-21T09:00:00Z", "reason": "agreed with its owner"}
REBOOT = {
    "source": "6.1.0-47-amd64",
    "target": "6.1.0-50-amd64",
    "select": ["/sbin/choose"],
    "restart": ["/sbin/reboot"],
}
FORCED = changed(m.node_upgrade(), "spec.force", [FORCE])

KERNEL = changed(m.gpu_stack(), "spec.reboot", {"kernel": "6.1.0-50-amd64", "select": ["/sbin/choose"]})

MAY_REBOOT = changed(
    changed(m.gpu_stack(), "spec.driver.onUnloadFailure", "Reboot"),
    "spec.reboot",
    {"kernel": "6.1.0-50-amd64", "select": ["/sbin/choose"]},
)

REAL = changed(m.gpu_stack(), "spec.driver", {"vendor": "nvidia", "version": "535.261.03"})
OTHER_FLAVOUR = {"vendor": "nvidia", "version": "535.261.03", "recipe": "nvidia-open", "flavour": "proprietary"}

MPS = {"mps": {"replicas": 4}}
SHARED = changed(REAL, "spec.devicePlugin.sharing", {"mps": {"replicas": 4, "runtimeClass": "nvidia"}})

REFUSED = [
    # kind, path of the rule, stored before (None: refused at once), field, value
    (MANAGED, "spec.kubelet", None, "spec.kubelet.artifact", None),
    (MANAGED, "spec.kubelet", None, "spec.kubelet.version", None),
    (m.gpu_stack(), "spec.kubelet.settings", None, "spec.kubelet", {"settings": {"cpuManagerPolicy": "static"}}),
    (m.gpu_stack(), "spec.kubelet.settings", None, "spec.kubelet", {"settings": {"topologyManagerScope": "pod"}}),
    (REAL, "spec.validation", None, "spec.validation", {"runtimeClass": "nvidia"}),
    (REAL, "spec.driver", None, "spec.driver.recipe", "sim"),
    (REAL, "spec.driver", None, "spec.driver", OTHER_FLAVOUR),
    (REAL, "spec.driver.parameters", None, "spec.driver.parameters", {"nvidia-drm.modeset": "1"}),
    (REAL, "spec.driver.parameters", None, "spec.driver.parameters", {"NVreg_X": "1"}),
    (REAL, "spec.driver.parameters", None, "spec.driver.parameters", {f"nvidia.p{n:02}": "1" * 155 for n in range(16)}),
    (REAL, "spec.devicePlugin.sharing", None, "spec.devicePlugin.sharing", MPS | {"timeSlices": 2}),
    (REAL, "spec.devicePlugin.sharing", None, "spec.devicePlugin.sharing", MPS | {"migStrategy": "single"}),
    (REAL, "spec.devicePlugin.sharing", None, "spec.devicePlugin.sharing", MPS | {"migStrategy": "mixed"}),
    (SHARED, "spec.devicePlugin", None, "spec.devicePlugin.resourceName", "example.com/gpu"),
    (m.gpu_stack(), "spec.runtime", None, "spec.runtime", {"management": "Managed"}),
    (m.gpu_stack(), "spec.devicePlugin", None, "spec.devicePlugin.image", None),
    (REAL, "spec.featureDiscovery", None, "spec.featureDiscovery", {"management": "Managed"}),
    (REAL, "spec.monitoring", None, "spec.monitoring", {"management": "Managed"}),
    (m.gpu_stack(), "spec.reboot", None, "spec.reboot", {"kernel": "6.1.0-50-amd64", "select": ["grub-set-default"]}),
    (m.gpu_stack(), "spec.limits", None, "spec.limits", {"driverUnloadSeconds": 2581}),
    (KERNEL, "spec", None, "spec.reboot.settleSeconds", 2581),
    (m.gpu_stack(), "spec", None, "spec.driver.onUnloadFailure", "Reboot"),
    (MAY_REBOOT, "spec", None, "spec.limits", {"driverUnloadSeconds": 1801}),
    (m.gpu_stack(), "spec.gangs", None, "spec.gangs", [{"label": "run", "regex": "a"}]),
    (m.gpu_stack(), "spec.gangs", None, "spec.gangs", [{"label": "run"}, {}]),
    (m.upgrade_plan(), "spec.stack", m.upgrade_plan(), "spec.stack", "another"),
    (m.upgrade_plan(), "spec.targetRevision", m.upgrade_plan(), "spec.targetRevision", "another"),
    (ABORTING, "spec.state", ABORTING, "spec.state", "Running"),
    (m.upgrade_plan(), "spec.strategy.maxUnavailable", None, "spec.strategy.maxUnavailable", "0%"),
    (m.upgrade_plan(), "spec.strategy.maxUnavailable", None, "spec.strategy.maxUnavailable", "101%"),
    (m.upgrade_plan(), "spec.strategy.maxUnavailable", None, "spec.strategy.maxUnavailable", "7"),
    (m.upgrade_plan(), "spec.strategy.maxUnavailable", None, "spec.strategy.maxUnavailable", 0),
    (m.node_upgrade(), "spec", m.node_upgrade(), "spec.target.driverVersion", "580.1"),
    (m.node_upgrade(), "spec", m.node_upgrade(), "spec.reboot", REBOOT),
    (m.node_upgrade(), "spec", m.node_upgrade(), "spec.limits", {"loadingSeconds": 60}),
    (FORCED, "spec", FORCED, "spec.force", [FORCE | {"reason": "another"}]),
    (m.checkpoint_request(), "spec.gang", m.checkpoint_request(), "spec.gang", "another"),
    (m.checkpoint_request(), "spec.owner", m.checkpoint_request(), "spec.owner.name", "another"),
    (m.checkpoint_request(), "spec.requestId", m.checkpoint_request(), "spec.requestId", 99),
    (m.driver_image(), "spec", m.driver_image(), "spec.version", "580.1"),
    (m.driver_image(), "spec", m.driver_image(), "spec.kernel", "6.12"),
    (m.driver_image(), "spec", None, "spec.image", None),
    (NVIDIA, "spec", None, "spec.flavour", None),
    (NVIDIA, "spec", NVIDIA, "spec.os", "trixie"),
    (PINNED, "", PINNED, "spec.image", "r/driver:another"),
]

INVALID = [
    (m.gpu_stack(), "spec.nodeSelector", {}, "should have at least 1 properties"),
    (m.gpu_stack(), "spec.driver", None, "Required value"),
    (m.gpu_stack(), "spec.driver.version", "two words", "should match"),
    (m.gpu_stack(), "spec.driver.vendor", "Acme!", "should match"),
    (m.gpu_stack(), "spec.driver.onUnloadFailure", "Shrug", "Unsupported value"),
    (m.gpu_stack(), "spec.reboot", {"kernel": "two words", "select": ["/sbin/choose"]}, "should match"),
    (m.gpu_stack(), "spec.reboot", {"kernel": "6.1.0-50-amd64", "select": []}, "should have at least 1 items"),
    (KERNEL, "spec.reboot.onLoss", "Ignore", "Unsupported value"),
    (KERNEL, "spec.reboot.settleSeconds", 9, "greater than or equal to 10"),
    (m.gpu_stack(), "metadata.name", "n" * 64, "may not be more than 63|Too long"),
    (m.gpu_stack(), "spec.devicePlugin.sharing", {"timeSlices": 1}, "greater than or equal to 2"),
    (REAL, "spec.devicePlugin.sharing", {"mps": {"replicas": 1}}, "greater than or equal to 2"),
    (REAL, "spec.devicePlugin.sharing", {"mps": {"replicas": 49}}, "less than or equal to 48"),
    (REAL, "spec.devicePlugin.sharing.mps", {"runtimeClass": "nvidia"}, "Required value"),
    (m.gpu_stack(), "spec.runtime", {"management": "Somebody"}, "Unsupported value"),
    (m.gpu_stack(), "spec.gangs", [{"label": "two words"}], "should match"),
    (m.gpu_stack(), "spec.gangs", [{"label": "run"}] * 17, "must have at most 16 items"),
    (m.upgrade_plan(), "spec.state", "Stop", "Unsupported value"),
    (m.upgrade_plan(), "spec.checkpoint.timeoutSeconds", 0, "should be greater than or equal to 1"),
    (m.upgrade_plan(), "spec.checkpoint.method", "file,shout", "should match"),
    (m.upgrade_plan(), "spec.strategy.topologyBudgets", [{"key": "rack", "maxUnavailable": "0%"}], "should match"),
    (m.upgrade_plan(), "spec.strategy.topologyBudgets", [{"key": "r", "maxUnavailable": 0}], "greater than or equal"),
    (m.upgrade_plan(), "spec.strategy.topologyBudgets", [{"key": "r", "maxUnavailable": 1}] * 2, "Duplicate"),
    (m.upgrade_plan(), "spec.strategy.windows", [{"start": "24:00"}], "should match"),
    (m.upgrade_plan(), "spec.strategy.windows", [{"days": ["Someday"]}], "Unsupported value"),
    (m.upgrade_plan(), "spec.strategy.canary", {"soakSeconds": -1}, "greater than or equal to 0"),
    (m.upgrade_plan(), "spec.strategy.onFailure", "Shrug", "Unsupported value"),
    (m.upgrade_plan(), "spec.strategy.deadlineSeconds", 1, "greater than or equal to 60"),
    (m.gpu_stack(), "spec.historyLimit", 0, "greater than or equal to 1"),
    (REAL, "spec.driver.parameters", {"nvidia.NVreg_X": "1 2"}, "should match"),
    (REAL, "spec.driver.parameters", {"nvidia.NVreg_X": ""}, "should be at least 1 chars"),
    (
        REAL,
        "spec.driver.parameters",
        {f"nvidia.p{n}": "1" for n in range(17)},
        "must have at most 16 (items|properties)",
    ),
    (m.gpu_stack(), "spec.limits", {"upgradingSeconds": 299}, "greater than or equal to 300"),
    (m.gpu_stack(), "spec.limits", {"validatingSeconds": 28801}, "less than or equal to 28800"),
    (m.checkpoint_request(), "spec.askedAt", "yesterday", "date-time"),
    (m.node_upgrade(), "spec.reason", "Boredom", "Unsupported value"),
]


def named(manifest):
    """The manifest under a name that no other test uses."""
    return changed(manifest, "metadata.name", f"{manifest['metadata']['name'][:30]}-{uuid.uuid4().hex[:8]}")


def test_every_rule_is_shown_refusing():
    assert {(manifest["kind"], path) for manifest, path, *_ in REFUSED} == {
        (kind.resource.kind, rule.path) for kind in KINDS for rule in kind.rules
    }


@pytest.mark.parametrize("manifest", VALID, ids=lambda manifest: manifest["kind"])
async def test_what_is_valid_is_stored(api, manifest):
    kind = BY_KIND[manifest["kind"]].resource
    made = await api.create(kind, named(manifest))
    assert await api.get(kind, made.metadata.name, made.metadata.namespace) == made


@pytest.mark.parametrize(("manifest", "path", "before", "field", "value"), REFUSED)
async def test_a_rule_refuses_with_its_sentence(api, manifest, path, before, field, value):
    kind = BY_KIND[manifest["kind"]]
    sentences = [rule.sentence for rule in kind.rules if rule.path == path]
    with pytest.raises(ConfigurationError) as refused:
        await write(api, kind.resource, before, changed(manifest, field, value))
    assert len([sentence for sentence in sentences if sentence in str(refused.value)]) == 1


async def write(api, kind, before, manifest):
    """Create it, or change what was stored `before` into it."""
    if before is None:
        await api.create(kind, named(manifest))
        return
    made = await api.create(kind, named({key: value for key, value in before.items() if key != "status"}))
    if "status" in before:
        made = await api.merge(kind, made.metadata, {"status": before["status"]}, "status")
    await api.merge(kind, made.metadata, {"spec": manifest["spec"]})


@pytest.mark.parametrize(("manifest", "field", "value", "said"), INVALID)
async def test_what_is_invalid_is_refused_with_its_field(api, manifest, field, value, said):
    with pytest.raises(ConfigurationError, match=said) as refused:
        await api.create(BY_KIND[manifest["kind"]].resource, changed(named(manifest), field, value))
    assert field.rsplit(".", 1)[-1] in str(refused.value)


async def test_gpus_are_shared_by_mps_and_null_says_that_they_are_not(api):
    kind = BY_KIND["GpuStack"].resource
    made = await api.create(kind, named(SHARED))
    assert (made.spec.device_plugin.sharing.mps.replicas, made.spec.device_plugin.sharing.time_slices) == (4, None)
    left = {"mps": None, "timeSlices": 2, "migStrategy": "single"}
    made = await api.create(kind, named(changed(REAL, "spec.devicePlugin.sharing", left)))
    assert (made.spec.device_plugin.sharing.mps, made.spec.device_plugin.sharing.time_slices) == (None, 2)


@pytest.mark.parametrize("value", [1, 64, "1%", "25%", "100%"])
async def test_a_limit_is_a_number_or_a_percentage(api, value):
    kind = BY_KIND["UpgradePlan"].resource
    made = await api.create(kind, named(changed(m.upgrade_plan(), "spec.strategy.maxUnavailable", value)))
    assert made.spec.strategy.max_unavailable == value


async def test_a_whole_strategy_is_stored_with_its_defaults(api):
    kind = BY_KIND["UpgradePlan"].resource
    asked = {
        "topologyBudgets": [{"key": "rack", "maxUnavailable": "50%"}, {"key": "power", "maxUnavailable": 16}],
        "windows": [{"days": ["Mon", "Fri"], "start": "22:00", "end": "05:00", "timeZone": "Europe/Berlin"}, {}],
        "deadlineSeconds": 86400,
    }
    made = await api.create(kind, named(changed(m.upgrade_plan(), "spec.strategy", asked)))
    strategy = made.spec.strategy
    assert [(one.key, one.max_unavailable) for one in strategy.topology_budgets] == [("rack", "50%"), ("power", 16)]
    assert [(one.days, one.start, one.end, one.time_zone) for one in strategy.windows] == [
        (("Mon", "Fri"), "22:00", "05:00", "Europe/Berlin"),
        ((), "00:00", "00:00", "UTC"),
    ]
    assert (strategy.canary.enabled, strategy.canary.soak_seconds, strategy.deadline_seconds) == (True, 600, 86400)


async def test_a_step_may_be_forced_and_stays_on_record(api):
    kind = BY_KIND["NodeUpgrade"].resource
    made = await api.create(kind, named(m.node_upgrade()))
    made = await api.merge(kind, made.metadata, {"spec": {"force": [FORCE]}})
    made = await api.merge(kind, made.metadata, {"spec": {"force": [FORCE, FORCE | {"step": "Preparing"}]}})
    assert [one.step for one in made.spec.force] == ["Draining", "Preparing"]


async def test_null_says_the_same_as_absence(api):
    kind = BY_KIND["GpuStack"].resource
    made = await api.create(kind, named(changed(MANAGED, "spec.kubelet", {"version": None, "artifact": None})))
    assert (made.spec.kubelet.version, made.spec.kubelet.manage) == (None, False)
    with pytest.raises(ConfigurationError, match="manage requires version and artifact"):
        await api.create(
            kind, named(changed(MANAGED, "spec.kubelet", {"manage": True, "version": None, "artifact": "r/k:1"}))
        )


async def test_acknowledgements_of_one_pod_are_stored_once(api):
    kind = BY_KIND["CheckpointRequest"].resource
    made = await api.create(kind, named(m.checkpoint_request()))
    twice = [{"podUid": "u", "requestId": 1, "step": step} for step in (1, 2)]
    with pytest.raises(ConfigurationError, match="Duplicate"):
        await api.merge(kind, made.metadata, {"status": {"acks": twice}}, "status")


async def test_the_columns_of_a_stack_tell_how_it_stands_with_each_operand(api, kubeconfig):
    """As `kubectl get gpustacks` has it: the API server fills the columns, by paths that look into lists."""
    made = await api.create(BY_KIND["GpuStack"].resource, named(m.gpu_stack()))
    shown = {"Driver": "7/8", "Runtime": "External", "DevicePlugin": "6/8", "FeatureDiscovery": "0/8"}
    rows = [{"operand": name, "state": "Waiting", "shown": word} for name, word in shown.items()]
    status = {"ready": 6, "nodes": 8, "operands": rows}
    await api.merge(BY_KIND["GpuStack"].resource, made.metadata, {"status": status}, "status")
    client = await config.new_client_from_config(kubeconfig)
    async with client:
        answer = await client.call_api(
            "GET",
            f"{client.configuration.host}/apis/{BY_KIND['GpuStack'].resource.api_version}/gpustacks/{made.metadata.name}",
            header_params={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"},
        )
        table = json.loads(await answer.read())
    names = [one["name"] for one in table["columnDefinitions"]]
    found = dict(zip(names, table["rows"][0]["cells"], strict=True))
    told = {name: found[name] for name in ("Ready", "Nodes", "Driver", "Runtime", "Plugin", "Discovery", "Monitoring")}
    assert told == {
        "Ready": 6,
        "Nodes": 8,
        "Driver": "7/8",
        "Runtime": "External",
        "Plugin": "6/8",
        "Discovery": "0/8",
        "Monitoring": None,
    }


@pytest.mark.parametrize(("where", "manifest"), list(documented_manifests()))
async def test_every_documented_manifest_is_accepted(api, where, manifest):
    await api.create(BY_KIND[manifest["kind"]].resource, named(manifest))
