import pytest

from tests.support.kernel_modules import Sample, headers
from tests.support.signing_keys import make_key
from upgrader.core.driver_build.driver_builds import CheckName
from upgrader.core.errors import ConfigurationError
from upgrader.images.modules import open_key, sign_module, verify_modules
from upgrader.images.modules.verify import versions_in

CHECKS = [CheckName.CONTENTS, CheckName.VERMAGIC, CheckName.CRC, CheckName.VERSIONS, CheckName.SIGNATURE]
DRIVER = "535.261.03"


def _tree(folder, library=DRIVER):
    for path in (f"lib/libnvidia-ml.so.{library}", "lib/libnvidia-egl-wayland.so.1.1.10"):
        (folder / "tree/lib").mkdir(parents=True, exist_ok=True)
        (folder / "tree" / path).write_text("")
    (folder / "tree/lib/libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{library}")
    (folder / "tree/lib/firmware/nvidia" / DRIVER).mkdir(parents=True)
    return folder / "tree"


def test_versions_are_read_from_the_names_of_libraries_and_firmware(tmp_path):
    tree = _tree(tmp_path)
    found = {f"lib/libnvidia-ml.so.{DRIVER}": DRIVER, f"lib/firmware/nvidia/{DRIVER}": DRIVER}
    assert versions_in(tree) == found
    with pytest.raises(ConfigurationError, match="is not a folder"):
        versions_in(tmp_path / "absent")


def test_every_check_is_made_and_passes(tmp_path):
    path = Sample(name="nvidia", version=DRIVER).write(tmp_path)
    key, certificate = make_key(tmp_path)
    sign_module(path, open_key(key, certificate))
    verdicts = verify_modules(
        [path],
        headers=headers(tmp_path),
        driver=DRIVER,
        expected=["nvidia"],
        tree=_tree(tmp_path),
        certificate=certificate,
    )
    assert [(one.check, one.passed) for one in verdicts] == [(check, True) for check in CHECKS]


def test_every_check_is_made_and_fails(tmp_path):
    path = Sample(name="nvidia", version="1", flags="none", imports={"gone": 1}).write(tmp_path)
    _key, certificate = make_key(tmp_path)
    verdicts = verify_modules(
        [path],
        headers=headers(tmp_path),
        driver=DRIVER,
        expected=["nvidia-uvm"],
        tree=_tree(tmp_path, "535.309.01"),
        certificate=certificate,
    )
    assert [(one.check, one.passed) for one in verdicts] == [(check, False) for check in CHECKS]
    assert "libnvidia-ml.so.535.309.01" in verdicts[3].reason


def test_a_module_that_cannot_be_read_is_a_verdict_and_nothing_else_is_claimed(tmp_path):
    path = tmp_path / "nvidia.ko"
    path.write_bytes(Sample().encoded()[:500])
    verdicts = verify_modules([path], headers=headers(tmp_path), driver=DRIVER, expected=["nvidia"])
    assert [(one.check, one.passed) for one in verdicts] == [(CHECKS[0], False), *((one, None) for one in CHECKS[1:])]
    assert "nvidia.ko: its section headers are outside of the file" in verdicts[0].reason
    assert "\n" not in verdicts[0].reason
