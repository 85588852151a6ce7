import msgspec
import yaml
from click.testing import CliRunner

from tests.support.guard_rails import STACK
from upgrader.api.v1alpha1 import GpuStack
from upgrader.cli.main import program
from upgrader.stack.guard_rails import guard_rails

TAINT = "nvidia.com/gpu=present:NoSchedule"
SETTING = "registerWithTaints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]"


def test_the_command_prints_them_and_names_the_taint_which_is_a_persons(tmp_path):
    file = tmp_path / "stack.yaml"
    file.write_text(STACK)
    said = CliRunner().invoke(program, ["guard-rails", "-f", str(file)])
    assert said.exit_code == 0
    assert said.output.splitlines()[:3] == [
        f"# the pool's taint is a person's: kubectl taint nodes -l pool=a,zone=z1 {TAINT} --overwrite",
        f"# nodes that join later, in their kubelet's configuration: {SETTING}",
        "# pods with GPUs need a toleration, or the API server's plugin ExtendedResourceToleration",
    ]
    assert list(yaml.safe_load_all(said.output)) == guard_rails(msgspec.convert(yaml.safe_load(STACK), GpuStack))
