import msgspec
import pytest

from tests.support.facts import target
from upgrader.core.fleet import Target
from upgrader.core.revisions import content_of, image_key, plugin_key, revision_of, with_revision

DIGEST = "sha256:" + "0123456789abcdef" * 4

FULL = Target(
    stack="pool-a",
    revision="",
    driver_vendor="sim",
    driver_version="570.10",
    plugin_image="registry.example/plugin:1.0",
    resource_name="nvidia.com/gpu",
    kubelet_version="1.35.4",
    kubelet_artifact="registry.example/kubelet:1.35.4",
    kubelet_binary="/usr/bin/kubelet",
)


def test_names_on_nodes_keep_their_bytes_for_ever():
    # Law 10: whoever changes one of these makes every node of every fleet drift at the next upgrade of upgrader.
    without_kubelet = msgspec.structs.replace(FULL, kubelet_version="", kubelet_artifact="", kubelet_binary="")
    assert {
        "with kubelet": revision_of(FULL),
        "without kubelet": revision_of(without_kubelet),
        "image": image_key(vendor="sim", version="570.10", kernel="6.1.0-40-amd64", digest=DIGEST),
        "plugin": plugin_key(digest=DIGEST, resource_name="nvidia.com/gpu"),
    } == {
        "with kubelet": "4d63d6eeb5",
        "without kubelet": "5c3a1572a1",
        "image": "622790ff8c3ed0f6",
        "plugin": "3844d2301da25f7a",
    }


@pytest.mark.parametrize("fact", ["stack", "revision", "plugin_digest"])
def test_what_is_no_fact_of_the_nodes_does_not_count(fact):
    assert revision_of(msgspec.structs.replace(FULL, **{fact: "other"})) == revision_of(FULL)


@pytest.mark.parametrize(
    "fact",
    [
        "driver_vendor",
        "driver_version",
        "plugin_image",
        "resource_name",
        "kubelet_version",
        "kubelet_artifact",
        "kubelet_binary",
    ],
)
def test_every_fact_of_the_nodes_counts(fact):
    assert revision_of(msgspec.structs.replace(FULL, **{fact: "other"})) != revision_of(FULL)


def test_values_cannot_move_from_one_fact_to_the_next():
    one = msgspec.structs.replace(FULL, kubelet_version="1.35.4", kubelet_artifact="")
    other = msgspec.structs.replace(FULL, kubelet_version="", kubelet_artifact="1.35.4")
    assert revision_of(one) != revision_of(other)


def test_a_target_is_named_by_its_facts():
    assert with_revision(FULL).revision == revision_of(FULL)
    assert with_revision(with_revision(FULL)) == with_revision(FULL)
    assert target().revision == revision_of(target())


def test_the_same_bytes_in_another_registry_are_the_same_image():
    keys = {
        image_key(vendor="sim", version="1", kernel="k", digest=digest)
        for digest in (DIGEST, f"a.example/driver@{DIGEST}", f"b.example:5000/x/y:tag@{DIGEST}")
    }
    assert len(keys) == 1


@pytest.mark.parametrize("digest", ["", "registry.example/driver:1", "sha256:abc", f"{DIGEST}0", f"x{DIGEST}"])
def test_a_tag_is_never_a_key(digest):
    with pytest.raises(ValueError, match="not pinned"):
        content_of(digest)
