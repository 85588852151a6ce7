import msgspec
import yaml
from click.testing import CliRunner

from tests.support.guard_rails import STACK
from upgrader.api.v1alpha1 import GpuStack
from upgrader.cli.main import program
from upgrader.stack.guard_rails import guard_rails

TAINT = "nvidia.com/gpu=present:NoSchedule"
COMMAND = f"kubectl taint nodes -l pool=a,zone=z1 {TAINT} --overwrite"
SETTING = "registerWithTaints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]"


def test_the_command_prints_them_and_names_the_taint_which_is_a_persons(tmp_path):
    file = tmp_path / "stack.yaml"
    file.write_text(STACK)
    said = CliRunner().invoke(program, ["guard-rails", "-f", str(file)])
    assert said.exit_code == 0
    assert said.output.splitlines()[:3] == [
        f"# the taint of the pool is not a manifest; set it with: {COMMAND}",
        f"# for nodes that join later, set in the kubelet configuration: {SETTING}",
        "# pods with GPUs require a toleration, or the admission plugin ExtendedResourceToleration of the API server",
    ]
    assert list(yaml.safe_load_all(said.output)) == guard_rails(msgspec.convert(yaml.safe_load(STACK), GpuStack))
