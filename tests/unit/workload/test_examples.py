"""The example Jobs are those of the demo; docs/guides/job-authors/checkpointing.md names the fields of the code."""

import msgspec
import pytest
import yaml

from tests.support.repository import ROOT
from upgrader.api.kubernetes import Job
from upgrader.workload import ANSWER_DIRECTORY, REQUEST_DIRECTORY
from upgrader_dev.demo.manifests import trainer_job

IMAGE = "registry.example/upgrader/trainer:latest"
WHOLE = {
    "trainer-gang": trainer_job("trainer-gang", image=IMAGE, members=2, gpus=8),
    "trainer-single": trainer_job("trainer-single", image=IMAGE, members=1, gpus=1),
}


@pytest.mark.parametrize("name", WHOLE)
def test_an_example_is_the_job_that_the_demo_runs(name):
    example = yaml.safe_load((ROOT / f"docs/examples/{name}.yaml").read_text())
    assert example == WHOLE[name]
    assert msgspec.convert(example, Job).metadata.name == name


def test_the_page_shows_the_volumes_and_the_annotation_of_the_example():
    page = (ROOT / "docs/guides/job-authors/checkpointing.md").read_text()
    shown = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    template = WHOLE["trainer-gang"]["spec"]["template"]
    assert shown["metadata"]["annotations"].items() <= template["metadata"]["annotations"].items()
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert [volumes[volume["name"]] for volume in shown["spec"]["volumes"]] == shown["spec"]["volumes"]
    mounts = {mount["name"]: mount["mountPath"] for mount in shown["spec"]["containers"][0]["volumeMounts"]}
    assert mounts == {"request": REQUEST_DIRECTORY, "answers": ANSWER_DIRECTORY}
    assert shown["spec"]["containers"][0]["env"][0] in template["spec"]["containers"][0]["env"]


def test_the_loop_on_the_page_uses_what_the_listener_has():
    page = (ROOT / "docs/guides/job-authors/checkpointing.md").read_text()
    source = (ROOT / "upgrader/workload.py").read_text()
    for call in ("progress(step)", "requested()", "acknowledge(request, step, save_checkpoint(step))", "park(request)"):
        assert f"listener.{call}" in page
        assert f"def {call.split('(')[0]}(self" in source
