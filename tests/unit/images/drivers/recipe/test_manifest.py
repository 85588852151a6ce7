"""The load order of an image, derived from what its modules depend on."""

from tests.support.kernel_modules import Sample
from tests.support.trusting import IDENTITY, INPUTS
from upgrader.images.drivers.recipe.manifest import describe_image, load_order, shipped_module


def test_in_tree_modules_follow_from_the_modules_and_are_optional_if_only_optional_modules_need_them(tmp_path):
    samples = [
        (Sample(name="nvidia", depends=["drm", "i2c_core"]), False),
        (Sample(name="nvidia-modeset", depends=["video", "nvidia", "i2c_core"]), True),
        (Sample(name="nvidia-uvm", depends=["nvidia"]), False),
    ]
    modules = [
        shipped_module(sample.write(tmp_path), f"m/{sample.name}.ko", optional=optional) for sample, optional in samples
    ]
    sources = [module.srcversion for module in modules]
    assert load_order(describe_image(IDENTITY, INPUTS, modules=modules, verdicts=[])).splitlines() == [
        "in-tree drm required",
        "in-tree i2c_core required",
        "in-tree video optional",
        f"module nvidia {sources[0]} m/nvidia.ko required",
        f"module nvidia_modeset {sources[1]} m/nvidia-modeset.ko optional",
        f"module nvidia_uvm {sources[2]} m/nvidia-uvm.ko required",
    ]
