"""What we put on nodes, whole, against files that a person can read (`make golden` writes them anew; read the diff)."""

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import assert_golden, in_full
from tests.support.node_upgrades import upgrade
from tests.support.rendered import RENDERED, SETTINGS, STACK, UPGRADED
from tests.support.repository import ROOT
from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.core.model.phases import NodePhase, transition_of
from upgrader.stack import manifests
from upgrader.stack.operands.node_features import NODE_FILES

GOLDEN = ROOT / "tests" / "unit" / "stack" / "golden"


@pytest.mark.parametrize("name", RENDERED)
def test_what_is_rendered_is_what_was_read_and_kept(name):
    assert_golden(GOLDEN / f"{name}.yaml", in_full(RENDERED[name]()))


def test_no_kept_file_is_without_its_manifest():
    assert {file.stem for file in GOLDEN.glob("*")} == set(RENDERED)


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("prepare-pod", NodePhase.PREPARING),
        ("upgrade-job", NodePhase.UPGRADING),
        ("upgrade-job-back", NodePhase.UPGRADING),
        ("validation-pod", NodePhase.VALIDATING),
    ],
)
def test_the_deadline_of_a_pod_is_before_that_of_its_phase(name, phase):
    assert 0 < RENDERED[name]()["spec"]["activeDeadlineSeconds"] < transition_of(phase).seconds


@given(node=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True), reverting=st.booleans())
def test_names_are_labels_that_leave_room_for_a_pods_suffix(node, reverting):
    upgraded = upgrade(node=node)
    found = [
        manifests.prepare_pod(upgraded, SETTINGS)["metadata"]["name"],
        manifests.upgrade_job(upgraded, reverting=reverting, settings=SETTINGS)["metadata"]["name"],
        manifests.validation_pod(upgraded, reverting=reverting, node=UPGRADED, settings=SETTINGS)["metadata"]["name"],
    ]
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= 52 for name in found)
    assert len(set(found)) == 3


def test_both_ways_of_one_upgrade_and_upgrades_of_one_node_have_names_of_their_own():
    upgrades = [
        upgrade(),
        msgspec.structs.replace(upgrade(), metadata=msgspec.structs.replace(upgrade().metadata, uid="b")),
    ]
    found = {manifests.upgrade_name(one, reverting=way) for one in upgrades for way in (False, True)}
    assert len(found) == 4


@pytest.mark.parametrize("name", [name for name in RENDERED if "daemonset" not in name and "build" not in name])
def test_what_a_node_upgrade_made_is_found_again(name):
    manifest = RENDERED[name]()
    template = manifest["spec"].get("template", manifest)
    for meta in (manifest["metadata"], template["metadata"]):
        assert meta["annotations"][names.ANNOTATION_NODE_UPGRADE] == "node-1-upgrade"
        assert meta["labels"][names.LABEL_COMPONENT] in {"prepare", "upgrade", "validate"}


def test_mps_is_ready_before_the_plugin_begins_and_both_read_one_file():
    template = RENDERED["plugin-daemonset-nvidia-mps"]()["spec"]["template"]
    *_, mounts, daemon = template["spec"]["initContainers"]
    (plugin,) = template["spec"]["containers"]
    assert (mounts["command"][-1], daemon["restartPolicy"], "startupProbe" in daemon) == ("mount-shm", "Always", True)
    assert daemon["args"] == plugin["args"] == ["--config-file", "/config/config.yaml"]
    assert json.loads(template["metadata"]["annotations"][names.ANNOTATION_CONFIG])["sharing"].keys() == {"mps"}
    # Both look into the folder that the init container has mounted, under the same paths.
    seen = [{one["name"]: one["mountPath"] for one in each["volumeMounts"]} for each in (daemon, plugin)]
    assert [{name: paths[name] for name in ("mps-root", "mps-shm")} for paths in seen] == [
        {"mps-root": "/mps", "mps-shm": "/dev/shm"}
    ] * 2
    root = {one["name"]: one["value"] for one in plugin["env"]}["MPS_ROOT"]
    paths = {one["name"]: one["hostPath"]["path"] for one in template["spec"]["volumes"] if "hostPath" in one}
    assert (paths["mps-root"], paths["mps-shm"]) == (root, f"{root}/shm")


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
    paths = {one["hostPath"]["path"]: one["hostPath"]["type"] for one in spec["volumes"]}
    assert paths == {**dict.fromkeys(NODE_FILES.values(), "File"), "/lib": "Directory"}


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
