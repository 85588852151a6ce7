"""The ready stacks of deploy/stacks are taken as they are, and name images as they are meant to be named."""

import msgspec
import pytest
import yaml

from tests.support.repository import ROOT
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core.driver_image.image_names import with_registry
from upgrader.core.model.operands import PluginSettings
from upgrader.reconcile.observe.cluster_snapshot import target_of
from upgrader.reconcile.operands.nondisruptive_operands import managed_operands
from upgrader.stack.vendors import nvidia

STACKS = sorted((ROOT / "deploy" / "stacks").glob("*.yaml"))


@pytest.mark.parametrize("file", STACKS, ids=[one.stem for one in STACKS])
def test_a_ready_stack_names_every_image_by_a_tag_and_no_registry(file):
    (body,) = (one for one in yaml.safe_load_all(file.read_text()) if one["kind"] == "GpuStack")
    stack = msgspec.convert(body, GpuStack)
    target = target_of(stack.spec, stack.metadata.name)
    images = [
        target.plugin_image,
        target.runtime_image,
        target.workload_image,
        *(one.image for one in managed_operands(stack).values()),
    ]
    assert len(images) == 5
    for image in images:
        assert ":" in image.rpartition("/")[2]
        assert with_registry(image, "mirror.example") == f"mirror.example/{image}"


def test_a_runtime_class_names_the_handler_that_the_toolkit_adds():
    documents = yaml.safe_load_all((ROOT / "deploy" / "stacks" / "nvidia.yaml").read_text())
    (found,) = (one for one in documents if one["kind"] == "RuntimeClass")
    settings = PluginSettings(vendor="nvidia", driver_vendor="nvidia", resource_name="nvidia.com/gpu")
    program = nvidia.runtime_program(settings)
    assert (found["metadata"]["name"], found["handler"]) == ("nvidia", program.env["CONTAINERD_RUNTIME_CLASS"])
