import msgspec
import pytest

from tests.support.facts import target
from upgrader.core.model.fleet import Target
from upgrader.core.model.operands import PluginSettings
from upgrader.core.model.revisions import (
    content_of,
    image_key,
    plugin_key,
    plugin_key_of,
    revision_of,
    runtime_key_of,
    with_revision,
)

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
        "settings": revision_of(msgspec.structs.replace(FULL, kubelet_settings=(("cpuManagerPolicy", "static"),))),
    } == {
        "with kubelet": "4d63d6eeb5",
        "without kubelet": "5c3a1572a1",
        "image": "622790ff8c3ed0f6",
        "plugin": "3844d2301da25f7a",
        "settings": "3193131717",
    }


@pytest.mark.parametrize(
    "fact",
    [
        "stack",
        "revision",
        "plugin_digest",
        "runtime_digest",
        "workload_digest",
        "all_reduce_digest",
        "diagnostics_digest",
        "reboot_select",
    ],
)
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
        "kernel",
        "vendor",
        "driver_recipe",
        "driver_flavour",
        "runtime_image",
        "time_slices",
        "mig_strategy",
        "kubelet_settings",
        "workload_image",
        "workload_runtime",
        "mps_replicas",
        "mps_runtime",
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


def plugin(**changes):
    settings = {"vendor": "sim", "driver_vendor": "sim", "resource_name": "nvidia.com/gpu", **changes}
    return plugin_key(digest=DIGEST, resource_name="nvidia.com/gpu", more=PluginSettings(**settings).facts)


def test_a_plugin_with_default_settings_keeps_its_key():
    assert plugin() == plugin_key(digest=DIGEST, resource_name="nvidia.com/gpu", more=(("vendor", "sim"),))


def test_all_that_a_plugin_is_told_counts():
    told = [
        {"vendor": "nvidia"},
        {"driver_vendor": "nvidia"},
        {"time_slices": 4},
        {"mig_strategy": "mixed"},
        {"cdi": True},
        {"mps_replicas": 4},
        {"mps_replicas": 4, "mps_runtime": "nvidia"},
    ]
    assert len({plugin(), *(plugin(**one) for one in told)}) == 8


def test_a_runtime_hook_is_told_apart_by_its_content_and_by_whose_devices_it_describes():
    hook = msgspec.structs.replace(FULL, runtime_image="registry.example/hook:1", runtime_digest=f"x@{DIGEST}")
    real = msgspec.structs.replace(hook, driver_vendor="nvidia", vendor="sim")
    assert runtime_key_of(FULL) == ""
    assert len({runtime_key_of(hook), runtime_key_of(real)}) == 2
    assert plugin_key_of(msgspec.structs.replace(hook, plugin_digest=f"x@{DIGEST}")) != plugin()
