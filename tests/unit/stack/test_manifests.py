"""What we put on nodes, whole, against files that a person can read (`make golden` writes them anew; read the diff)."""

import re

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import assert_golden
from tests.support.repository import ROOT
from tests.support.visits import UID, state, upgrade
from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.v1alpha1 import DriverImage, GpuStack, GpuStackSpec
from upgrader.api.v1alpha1.driver_image import DriverImageSpec, DriverImageStatus
from upgrader.api.v1alpha1.gpu_stack import DevicePluginSpec, DriverSpec
from upgrader.core.driver_builds import Identity
from upgrader.core.fleet import ImageFacts
from upgrader.core.orders import (
    ORDER_VARIABLE,
    Driver,
    KubeletTarget,
    PrepareOrder,
    ValidateOrder,
    VisitOrder,
)
from upgrader.core.phases import DriverImagePhase, NodePhase, row
from upgrader.node.outcome import EXIT_CODES
from upgrader.stack import errand_pods, manifests
from upgrader.stack.build_jobs import build_job
from upgrader.stack.settings import BuildSettings, StackSettings

GOLDEN = ROOT / "tests" / "unit" / "stack" / "golden"

SETTINGS = StackSettings(node_image="registry.example/upgrader@sha256:" + "c" * 64)
IMAGE = ImageFacts(
    key="b" * 16,
    vendor="sim",
    version="570.10",
    kernel="6.1.0-47-amd64",
    digest="registry.example/driver@sha256:" + "b" * 64,
)
PLUGIN = "registry.example/plugin@sha256:" + "b" * 64

FRESH = {"kubeletVersion": "1.34.4"}
SAME_KUBELET = state("570.10", "1.34.4", "b")

IDENTITY = Identity(
    vendor="nvidia",
    recipe="nvidia-open",
    driver="550.163.01",
    flavour="open",
    kernel="6.12.94+deb13-amd64",
    os="trixie",
)
DRIVER_IMAGE = DriverImage(
    metadata=ObjectMeta(name="open-550", uid="0f" * 16),
    spec=DriverImageSpec(
        vendor="nvidia",
        recipe="nvidia-open",
        version="550.163.01",
        flavour="open",
        kernel="6.12.94+deb13-amd64",
        os="trixie",
    ),
    status=DriverImageStatus(phase=DriverImagePhase.BUILDING, attempts=1),
)
BUILDS = BuildSettings(
    repository="registry.example/drivers", builder_image="registry.example/builder@sha256:" + "d" * 64
)
SIGNED_BUILDS = msgspec.structs.replace(
    BUILDS,
    signing="signing",
    module_signing="module-signing",
    push_auth="push",
    insecure_registries=("registry.example",),
    node_selector=(("role", "build"),),
)

STACK = GpuStack(
    metadata=ObjectMeta(name="pool-a", uid="0e" * 16),
    spec=GpuStackSpec(
        node_selector={"pool": "a"},
        driver=DriverSpec(vendor="sim", version="570.10"),
        device_plugin=DevicePluginSpec(image=PLUGIN),
        node_features="Auto",
    ),
)

RENDERED = {
    "node-features-daemonset": lambda: manifests.node_features_daemonset(STACK, SETTINGS),
    "driver-daemonset": lambda: manifests.driver_daemonset("pool-a", IMAGE, SETTINGS),
    "plugin-daemonset": lambda: manifests.plugin_daemonset("pool-a", "b" * 16, PLUGIN, "nvidia.com/gpu", SETTINGS),
    "prepare-pod": lambda: manifests.prepare_pod(upgrade(), SETTINGS),
    "prepare-pod-of-a-new-node": lambda: manifests.prepare_pod(upgrade(source=FRESH, target=SAME_KUBELET), SETTINGS),
    "build-job": lambda: build_job(DRIVER_IMAGE, IDENTITY, BUILDS),
    "build-job-signed": lambda: build_job(DRIVER_IMAGE, IDENTITY, SIGNED_BUILDS),
    "visit-job": lambda: manifests.visit_job(upgrade(), reverting=False, settings=SETTINGS),
    "visit-job-back": lambda: manifests.visit_job(upgrade(), reverting=True, settings=SETTINGS),
    "validation-pod": lambda: manifests.validation_pod(upgrade(), reverting=False, boot_id="boot-7", settings=SETTINGS),
    "validation-pod-back": lambda: manifests.validation_pod(
        upgrade(), reverting=True, boot_id="boot-7", settings=SETTINGS
    ),
}


class InFull(yaml.SafeDumper):
    """What stands in several places is written in each, as in the API server."""

    def ignore_aliases(self, data):
        return True


@pytest.mark.parametrize("name", RENDERED)
def test_what_is_rendered_is_what_was_read_and_kept(name):
    text = yaml.dump(RENDERED[name](), Dumper=InFull, sort_keys=False, width=110)
    assert_golden(GOLDEN / f"{name}.yaml", text)


def test_no_kept_file_is_without_its_manifest():
    assert {file.stem for file in GOLDEN.glob("*")} == set(RENDERED)


def order(manifest, type_):
    spec = manifest["spec"].get("template", manifest)["spec"]
    (text,) = (one["value"] for one in spec["containers"][0]["env"] if one["name"] == ORDER_VARIABLE)
    return msgspec.json.decode(text, type=type_)


def images(manifest):
    spec = manifest["spec"].get("template", manifest)["spec"]
    return [one["image"] for one in (*spec.get("initContainers", []), *spec["containers"])]


def visit(reverting, **changes):
    return order(manifests.visit_job(upgrade(**changes), reverting=reverting, settings=SETTINGS), VisitOrder)


OLD, NEW = Driver(vendor="sim", version="560.1"), Driver(vendor="sim", version="570.10")
KUBELET = "/usr/bin/kubelet"

VISITS = {
    "forward, the source's driver goes out and the target's kubelet comes": (
        {},
        False,
        VisitOrder(visit=UID, unload=OLD, kubelet=KubeletTarget(version="1.35.4", binary=KUBELET)),
    ),
    "back, the target's driver goes out and the kubelet that was found comes": (
        {},
        True,
        VisitOrder(visit=f"{UID}-revert", unload=NEW, kubelet=KubeletTarget(version="1.34.4", binary=KUBELET)),
    ),
    "what a new node may have loaded from an earlier life goes out": (
        {"source": FRESH},
        False,
        VisitOrder(
            visit=UID, unload=Driver(vendor="sim", version=""), kubelet=KubeletTarget(version="1.35.4", binary=KUBELET)
        ),
    ),
    "a new node goes back to its kubelet, at the place where the visit swapped it": (
        {"source": FRESH},
        True,
        VisitOrder(visit=f"{UID}-revert", unload=NEW, kubelet=KubeletTarget(version="1.34.4", binary=KUBELET)),
    ),
    "a kubelet whose version stays is left alone": (
        {"target": SAME_KUBELET},
        False,
        VisitOrder(visit=UID, unload=OLD),
    ),
    "a kubelet that is not managed is left alone": (
        {"target": state("570.10", "", "b")},
        False,
        VisitOrder(visit=UID, unload=OLD),
    ),
    "a kubelet that is not managed is left alone on the way back too": (
        {"target": state("570.10", "", "b")},
        True,
        VisitOrder(visit=f"{UID}-revert", unload=NEW),
    ),
    "where nobody knows the former kubelet the way back keeps the new one": (
        {"source": {}},
        True,
        VisitOrder(visit=f"{UID}-revert", unload=NEW),
    ),
}


@pytest.mark.parametrize(("changes", "reverting", "expected"), VISITS.values(), ids=VISITS)
def test_the_visit_is_ordered(changes, reverting, expected):
    assert visit(reverting, **changes) == expected


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


def test_preparing_does_not_prove_twice_what_stays():
    target = state("570.10", "1.34.4", "b", pluginImage=f"registry.example/plugin@sha256:{'a' * 64}")
    assert images(manifests.prepare_pod(upgrade(target=target), SETTINGS)) == [
        f"registry.example/driver@sha256:{'b' * 64}",
        f"registry.example/plugin@sha256:{'a' * 64}",
        f"registry.example/driver@sha256:{'a' * 64}",
        f"registry.example/upgrader@sha256:{'c' * 64}",
    ]


def test_preparing_is_told_kernel_driver_and_kubelet():
    assert order(manifests.prepare_pod(upgrade(), SETTINGS), PrepareOrder) == PrepareOrder(
        kernel="6.1.0-47-amd64",
        driver=NEW,
        manifest="/manifest/manifest.json",
        kubelet=KubeletTarget(version="1.35.4", binary=KUBELET),
    )


def test_the_way_back_is_validated_against_the_source():
    pod = manifests.validation_pod(upgrade(), reverting=True, boot_id="boot-7", settings=SETTINGS)
    assert order(pod, ValidateOrder) == ValidateOrder(driver=OLD, boot_id="boot-7", devices=1)


def test_what_a_visit_reports_is_final_and_everything_else_runs_again():
    failures = set(EXIT_CODES.values()) - {0} | {1}
    assert set(errand_pods.REPORTED) == failures
    assert not {137, 143, 255, 128} & set(errand_pods.REPORTED)


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("prepare-pod", NodePhase.PREPARING),
        ("visit-job", NodePhase.VISITING),
        ("visit-job-back", NodePhase.VISITING),
        ("validation-pod", NodePhase.VALIDATING),
    ],
)
def test_ours_ends_before_its_phase_does(name, phase):
    assert 0 < RENDERED[name]()["spec"]["activeDeadlineSeconds"] < row(phase).seconds


@given(node=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True), reverting=st.booleans())
def test_names_are_labels_that_leave_room_for_a_pods_suffix(node, reverting):
    visited = upgrade(node=node)
    found = [
        manifests.prepare_pod(visited, SETTINGS)["metadata"]["name"],
        manifests.visit_job(visited, reverting=reverting, settings=SETTINGS)["metadata"]["name"],
        manifests.validation_pod(visited, reverting=reverting, boot_id="", settings=SETTINGS)["metadata"]["name"],
    ]
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= 52 for name in found)
    assert len(set(found)) == 3


def test_both_ways_of_one_visit_and_visits_of_one_node_have_names_of_their_own():
    visits = [
        upgrade(),
        msgspec.structs.replace(upgrade(), metadata=msgspec.structs.replace(upgrade().metadata, uid="b")),
    ]
    found = {manifests.visit_name(one, reverting=way) for one in visits for way in (False, True)}
    assert len(found) == 4


@pytest.mark.parametrize("name", [name for name in RENDERED if "daemonset" not in name and "build" not in name])
def test_what_a_visit_made_is_found_again(name):
    manifest = RENDERED[name]()
    template = manifest["spec"].get("template", manifest)
    for meta in (manifest["metadata"], template["metadata"]):
        assert meta["annotations"][names.ANNOTATION_NODE_UPGRADE] == "node-1-visit"
        assert meta["labels"][names.LABEL_COMPONENT] in {"prepare", "visit", "validate"}


def features(**changes):
    return manifests.node_features_daemonset(msgspec.structs.replace(STACK, **changes), SETTINGS)


def test_what_reads_features_may_do_nothing_but_read():
    spec = features()["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert {"hostNetwork", "hostPID", "hostIPC"} & spec.keys() == set()
    for one in (*spec["initContainers"], *spec["containers"]):
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert all(mounted["readOnly"] for mounted in one.get("volumeMounts", []))
    assert {one["hostPath"]["type"] for one in spec["volumes"]} == {"File"}


def test_what_reads_features_is_told_apart_by_its_content():
    mark = names.ANNOTATION_MANIFEST
    other = msgspec.structs.replace(STACK.spec, node_selector={"pool": "b"})
    marks = [one["metadata"]["annotations"][mark] for one in (features(), features(), features(spec=other))]
    assert marks[0] == marks[1] != marks[2]


@given(name=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True))
def test_what_reads_features_has_a_name_whatever_its_stack_is_called(name):
    made = features(metadata=ObjectMeta(name=name, uid="u"))["metadata"]["name"]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", made)
    assert len(made) <= 52
