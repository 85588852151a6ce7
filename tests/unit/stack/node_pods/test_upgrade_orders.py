"""What the programs of a node upgrade are told: each order is read back from its manifest."""

import msgspec
import pytest

from tests.support.node_upgrades import UID, state, upgrade
from tests.support.rendered import (
    CUDA_SAMPLE,
    FRESH,
    HOOKED,
    REAL,
    SAME_KUBELET,
    SETTINGS,
    UPGRADED,
    plugin_of,
    validation,
)
from upgrader.core.node_protocol.orders import (
    ORDER_VARIABLE,
    KubeletSettings,
    KubeletTarget,
    ModuleParameters,
    NodeDriver,
    PrepareOrder,
    Reason,
    Reboot,
    SurveyScope,
    UpgradeOrder,
    ValidateDriverOrder,
    ValidateOrder,
)
from upgrader.node.host.task_result import EXIT_CODES
from upgrader.stack import manifests
from upgrader.stack.node_pods import upgrade_pods


def order(manifest, type_, containers="containers"):
    spec = manifest["spec"].get("template", manifest)["spec"]
    (text,) = (one["value"] for one in spec[containers][0]["env"] if one["name"] == ORDER_VARIABLE)
    return msgspec.json.decode(text, type=type_)


def first_order(manifest):
    return order(manifest, ValidateDriverOrder, "initContainers")


def images(manifest):
    spec = manifest["spec"].get("template", manifest)["spec"]
    return [one["image"] for one in (*spec.get("initContainers", []), *spec["containers"])]


def upgrade_order(reverting, **changes):
    return order(manifests.upgrade_job(upgrade(**changes), reverting=reverting, settings=SETTINGS), UpgradeOrder)


WAYS = {"select": ("/sbin/choose", "--default"), "restart": ("/sbin/reboot",)}
REBOOT = {"source": "6.1.0-47-amd64", "target": "6.1.0-50-amd64"} | {key: list(words) for key, words in WAYS.items()}
OLD, NEW = NodeDriver(vendor="sim", version="560.1"), NodeDriver(vendor="sim", version="570.10")
KUBELET = "/usr/bin/kubelet"

STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-3"}
SET = state("570.10", "1.34.4", "b", kubeletSettings=STATIC)


def expected_order(**facts):
    """An order that leaves no parameters of modules on the node."""
    return UpgradeOrder(parameters=ModuleParameters(vendor="sim", values={}), **facts)


UPGRADES = {
    "forward, the source's driver goes out and the target's kubelet comes": (
        {},
        False,
        expected_order(upgrade=UID, unload=OLD, kubelet=KubeletTarget(version="1.35.4", binary=KUBELET)),
    ),
    "back, the target's driver goes out and the kubelet that was found comes": (
        {},
        True,
        expected_order(
            upgrade=f"{UID}-revert", undoes=UID, unload=NEW, kubelet=KubeletTarget(version="1.34.4", binary=KUBELET)
        ),
    ),
    "what a new node may have loaded from an earlier life goes out": (
        {"source": FRESH},
        False,
        expected_order(
            upgrade=UID,
            unload=NodeDriver(vendor="sim", version=""),
            kubelet=KubeletTarget(version="1.35.4", binary=KUBELET),
        ),
    ),
    "a new node goes back to its kubelet, at the place where the upgrade swapped it": (
        {"source": FRESH},
        True,
        expected_order(
            upgrade=f"{UID}-revert", undoes=UID, unload=NEW, kubelet=KubeletTarget(version="1.34.4", binary=KUBELET)
        ),
    ),
    "a reboot leads to the target's kernel": (
        {"target": SAME_KUBELET, "reboot": REBOOT},
        False,
        expected_order(upgrade=UID, unload=OLD, reboot=Reboot(kernel="6.1.0-50-amd64", **WAYS)),
    ),
    "going back, to the kernel that was found": (
        {"target": SAME_KUBELET, "reboot": REBOOT},
        True,
        expected_order(upgrade=f"{UID}-revert", undoes=UID, unload=NEW, reboot=Reboot(kernel="6.1.0-47-amd64", **WAYS)),
    ),
    "a kubelet whose version stays is left alone": (
        {"target": SAME_KUBELET},
        False,
        expected_order(upgrade=UID, unload=OLD),
    ),
    "files of the managed runtime hooks are forgotten, whichever way it goes": (
        {"source": HOOKED, "target": {**SAME_KUBELET, "runtimeKey": "d" * 16, "vendor": "nvidia"}},
        True,
        expected_order(
            upgrade=f"{UID}-revert",
            undoes=UID,
            unload=NEW,
            forget=("/run/gpu-upgrader/runtime.json", "/var/run/cdi/management.nvidia.com-gpu.yaml"),
        ),
    ),
    "that of somebody else's is not": (
        {"source": HOOKED, "target": {**SAME_KUBELET, "vendor": "nvidia"}},
        False,
        expected_order(upgrade=UID, unload=OLD, forget=("/run/gpu-upgrader/runtime.json",)),
    ),
    "a kubelet that is not managed is left alone": (
        {"target": state("570.10", "", "b")},
        False,
        expected_order(upgrade=UID, unload=OLD),
    ),
    "a kubelet that is not managed is left alone on the way back too": (
        {"target": state("570.10", "", "b")},
        True,
        expected_order(upgrade=f"{UID}-revert", undoes=UID, unload=NEW),
    ),
    # The driver stays loaded: its image is the same.
    "settings of the kubelet are ordered where they change": (
        {"source": SAME_KUBELET, "target": SET},
        False,
        expected_order(upgrade=UID, settings=KubeletSettings(binary=KUBELET, values=STATIC)),
    ),
    "and those of before on the way back": (
        {"source": SAME_KUBELET, "target": SET},
        True,
        expected_order(upgrade=f"{UID}-revert", undoes=UID, settings=KubeletSettings(binary=KUBELET)),
    ),
    "settings that go are ordered too, of the kubelet where they were": (
        {"source": SET, "target": state("570.10", "", "b", kubeletBinary="")},
        False,
        expected_order(upgrade=UID, settings=KubeletSettings(binary=KUBELET)),
    ),
    "settings that stay are left alone": ({"source": SET, "target": SET}, False, expected_order(upgrade=UID)),
    "where nobody knows the former kubelet the way back keeps the new one": (
        {"source": {}},
        True,
        expected_order(upgrade=f"{UID}-revert", undoes=UID, unload=NEW),
    ),
}


@pytest.mark.parametrize("reverting", [False, True])
def test_a_driver_of_another_operator_is_unloaded_on_an_adopted_node_and_not_on_the_way_back(reverting):
    job = manifests.upgrade_job(upgrade(source=FRESH), reverting=reverting, settings=SETTINGS, adopted=True)
    assert order(job, UpgradeOrder).adopted is not reverting


@pytest.mark.parametrize(("changes", "reverting", "expected"), UPGRADES.values(), ids=UPGRADES)
def test_the_upgrade_is_ordered(changes, reverting, expected):
    assert upgrade_order(reverting, **changes) == expected


def test_preparing_pulls_what_both_ways_need():
    digest = {letter: "@sha256:" + letter * 64 for letter in "abc"}
    assert images(manifests.prepare_pod(upgrade(), SETTINGS)) == [
        f"registry.example/driver{digest['b']}",
        f"registry.example/plugin{digest['b']}",
        f"registry.example/driver{digest['a']}",
        f"registry.example/plugin{digest['a']}",
        f"registry.example/kubelet{digest['b']}",
        f"registry.example/upgrader{digest['c']}",
    ]


def test_somebody_elses_plugin_is_not_proven():
    target = state("570.10", "1.34.4", "b", pluginImage="", pluginKey="")
    pod = manifests.prepare_pod(upgrade(source={}, target=target), SETTINGS)
    assert "plugin" not in [one["name"] for one in pod["spec"]["initContainers"]]


def test_preparing_does_not_prove_twice_what_stays():
    target = state("570.10", "1.34.4", "b", pluginImage=f"registry.example/plugin@sha256:{'a' * 64}")
    assert images(manifests.prepare_pod(upgrade(target=target), SETTINGS)) == [
        f"registry.example/driver@sha256:{'b' * 64}",
        f"registry.example/plugin@sha256:{'a' * 64}",
        f"registry.example/driver@sha256:{'a' * 64}",
        f"registry.example/upgrader@sha256:{'c' * 64}",
    ]


def proofs(vendor, **options):
    """What proves the plugins of source and target, and the plugin that the target's options start."""
    more = {"vendor": vendor, "driverVendor": "sim" if vendor == "sim" else "nvidia", **options}
    target = state("570.10", "1.34.4", "b", **more)
    source = state("560.1", "1.34.4", "a", **more)
    spec = manifests.prepare_pod(upgrade(source=source, target=target), SETTINGS)["spec"]
    found = {one["name"]: one for one in spec["initContainers"]}
    shares = {"time_slices": options.get("timeSlices", 0), "mps_replicas": options.get("mpsReplicas", 0)}
    plugin = plugin_of(vendor, more["driverVendor"], **shares)
    (started,) = plugin["spec"]["template"]["spec"]["containers"]
    return found["former-plugin"], found["plugin"], started


def test_a_plugin_is_proven_with_the_options_that_it_will_be_started_with():
    former, proof, started = proofs("sim", timeSlices=4)
    assert proof["command"] == [*started["command"], "--check"]
    assert "--slices" in proof["command"]
    assert former["command"][-1] == "--help"


def test_a_plugin_of_nvidias_is_proven_with_its_environment_too():
    former, proof, started = proofs("nvidia", timeSlices=4)
    assert proof["env"] == started["env"]
    assert (proof["command"], proof["args"]) == (started["command"], [*started["args"], "--version"])
    assert former["command"] == ["nvidia-device-plugin", "--version"]


def test_a_plugin_that_shares_by_mps_is_proven_with_its_control_daemon():
    _, proof, started = proofs("nvidia", mpsReplicas=4)
    shell, _, words, _ = proof["command"]
    assert (shell, words) == ("sh", 'nvidia-device-plugin "$@" && mps-control-daemon "$@"')
    no_gpu = {"NVIDIA_VISIBLE_DEVICES": "void"}  # where no driver is loaded yet, the runtime would let nothing start
    wanted = {one["name"]: one["value"] for one in started["env"]} | no_gpu
    assert {one["name"]: one["value"] for one in proof["env"]} == wanted
    assert proof["args"] == [*started["args"], "--version"]


def test_a_share_by_mps_is_worked_on_by_a_container_of_its_own():
    upgraded = msgspec.structs.replace(UPGRADED, gpus=32, gpus_allocatable=32)
    walk = upgrade(target=nvidia(**CUDA_SAMPLE, mpsReplicas=4), found={"gpus": 8})
    pod = manifests.validation_pod(walk, reverting=False, node=upgraded, settings=SETTINGS)
    assert len([one for one in pod["spec"]["containers"] if one["name"].startswith("workload-")]) == 32
    assert order(pod, ValidateDriverOrder).expected == 32


MIXED = msgspec.structs.replace(
    UPGRADED, gpus=9, gpus_allocatable=9, gpus_in_parts=(("nvidia.com/mig-1g.10gb", 6), ("nvidia.com/mig-3g.40gb", 1))
)


def test_every_partition_is_worked_on_by_a_container_of_its_own():
    walk = upgrade(target=nvidia(**CUDA_SAMPLE, migStrategy="mixed"), found={"gpus": 9})
    pod = manifests.validation_pod(walk, reverting=False, node=MIXED, settings=SETTINGS)
    asked = [next(iter(one["resources"]["limits"])) for one in pod["spec"]["containers"][1:]]
    assert asked == ["nvidia.com/gpu"] * 2 + ["nvidia.com/mig-1g.10gb"] * 6 + ["nvidia.com/mig-3g.40gb"]
    assert [one["name"] for one in pod["spec"]["containers"][1:]] == [f"workload-{number}" for number in range(9)]


def test_where_all_gpus_are_in_parts_no_whole_one_is_asked_for():
    upgraded = msgspec.structs.replace(MIXED, gpus=7, gpus_allocatable=7)
    pod = manifests.validation_pod(upgrade(), reverting=False, node=upgraded, settings=SETTINGS)
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/mig-1g.10gb": "6", "nvidia.com/mig-3g.40gb": "1"}


SLICED, WHOLE = {"timeSlices": 4}, {}


@pytest.mark.parametrize(
    ("before", "after", "offers", "asked"),
    [
        (WHOLE, WHOLE, 8, ("8", "8")),
        (WHOLE, SLICED, 8, ("32", "8")),
        (SLICED, WHOLE, 32, ("8", "32")),
        (WHOLE, {"migStrategy": "mixed"}, 8, ("1", "8")),
    ],
)
def test_a_rehearsal_asks_for_as_many_gpus_as_there_will_be(before, after, offers, asked):
    source, target = state("560.1", "1.34.4", "a", **before), state("570.10", "1.35.4", "b", **after)
    upgraded = msgspec.structs.replace(UPGRADED, gpus=offers, gpus_allocatable=offers)
    shown = manifests.rehearsal_pods(upgrade(source=source, target=target), upgraded, SETTINGS)
    limits = [one[0]["spec"]["containers"][0]["resources"]["limits"] for one in (shown.forward, shown.revert)]
    assert limits == [{"nvidia.com/gpu": count} for count in asked]


def test_preparing_is_told_kernel_driver_and_kubelet():
    assert order(manifests.prepare_pod(upgrade(), SETTINGS), PrepareOrder) == PrepareOrder(
        kernel="6.1.0-47-amd64",
        driver=NEW,
        manifest="/manifest/manifest.json",
        kubelet=KubeletTarget(version="1.35.4", binary=KUBELET),
        survey=SurveyScope(
            vendor="sim",
            kernel="6.1.0-47-amd64",
            kubelet=KubeletTarget(version="1.35.4", binary=KUBELET),
            restarts_kubelet=True,
            binary=KUBELET,
            resources=("nvidia.com/gpu",),
            namespace="gpu-upgrader-system",
        ),
    )


def test_preparing_is_told_of_settings():
    told = order(manifests.prepare_pod(upgrade(target=SET), SETTINGS), PrepareOrder)
    assert told.settings == KubeletSettings(binary=KUBELET, values=STATIC)


def test_preparing_is_told_of_a_reboot():
    target = state("570.10", "1.34.4", "b", kernel="6.1.0-50-amd64")
    told = order(manifests.prepare_pod(upgrade(target=target, reboot=REBOOT), SETTINGS), PrepareOrder)
    assert (told.kernel, told.reboot) == ("6.1.0-50-amd64", Reboot(kernel="6.1.0-50-amd64", **WAYS))


def test_the_way_back_is_validated_against_the_source():
    pod = validation(reverting=True)
    assert order(pod, ValidateOrder) == ValidateOrder(driver=OLD, boot_id="boot-7", devices=8)
    assert first_order(pod) == ValidateDriverOrder(driver=OLD, boot_id="boot-7", resource="nvidia.com/gpu", expected=8)


@pytest.mark.parametrize(
    ("allocatable", "found", "asked", "expected"), [(8, 0, 8, 8), (7, 8, 7, 8), (8, 9, 8, 9), (0, 8, 1, 8)]
)
def test_all_that_is_offered_is_asked_for_and_all_that_was_there_is_expected(allocatable, found, asked, expected):
    upgraded = msgspec.structs.replace(UPGRADED, gpus_allocatable=allocatable)
    walk = upgrade(found={"gpus": found})
    pod = manifests.validation_pod(walk, reverting=False, node=upgraded, settings=SETTINGS)
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": str(asked)}
    assert order(pod, ValidateOrder).devices == asked
    assert first_order(pod).expected == expected


def test_a_shared_device_counts_once_in_the_workload():
    upgraded = msgspec.structs.replace(UPGRADED, gpus=32, gpus_allocatable=32)
    walk = upgrade(target=state("570.10", "1.35.4", "b", timeSlices=4), found={"gpus": 8})
    pod = manifests.validation_pod(walk, reverting=False, node=upgraded, settings=SETTINGS)
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "32"}
    assert (order(pod, ValidateOrder).devices, first_order(pod).expected) == (8, 32)


def nvidia(**more):
    return state("535.309.01", "1.35.4", "b", **REAL, **more)


def test_devices_on_which_nobody_works_are_looked_at_and_the_answer_says_so():
    pod = validation(target=nvidia())
    (container,) = pod["spec"]["containers"]
    assert (container["command"][-1], "limits" in container["resources"]) == ("validate-driver", False)
    assert [before["name"] for before in pod["spec"]["initContainers"]] == ["power-limits"]
    said = order(pod, ValidateDriverOrder).besides
    assert said == "checked only, because the stack has no workload"


def test_a_workload_has_a_container_for_each_device_beside_a_look_at_all_of_them():
    spec = validation(target=nvidia(**CUDA_SAMPLE))["spec"]
    limits, before = spec["initContainers"]
    assert limits["command"][-1] == "restore-power-limits"
    look, *workloads = spec["containers"]
    assert before["command"] == look["command"]
    assert spec["runtimeClassName"] == "nvidia"
    assert [one["name"] for one in workloads] == [f"workload-{number}" for number in range(8)]
    assert {one["image"] for one in workloads} == {CUDA_SAMPLE["workloadImage"]}
    assert [one["resources"] for one in workloads] == [{"limits": {"nvidia.com/gpu": "1"}}] * 8
    told = order(validation(target=nvidia(**CUDA_SAMPLE)), ValidateDriverOrder).besides
    assert told == f"{CUDA_SAMPLE['workloadImage']} ran on 8 of them, on each separately"


def test_the_way_back_is_worked_on_as_it_was_before():
    spec = validation(source=nvidia(), target=nvidia(**CUDA_SAMPLE), reverting=True)["spec"]
    assert [one["name"] for one in spec["containers"]] == ["validate"]


def test_what_a_node_upgrade_reports_is_final_and_everything_else_runs_again():
    # Nobody knows how long somebody else holds the driver, or the node.
    busy, occupied = EXIT_CODES[Reason.BUSY], EXIT_CODES[Reason.OCCUPIED]
    failures = set(EXIT_CODES.values()) - {0, busy, occupied} | {1}
    assert (busy, occupied) == (upgrade_pods.BUSY, upgrade_pods.OCCUPIED)
    assert set(upgrade_pods.REPORTED_FAILURES) == failures
    assert not {137, 143, 255, 128} & set(upgrade_pods.REPORTED_FAILURES)
