import pytest

from tests.support.kernel_modules import AARCH64, FLAGS, RELEASE, Sample, headers
from upgrader.core.driver_build.driver_builds import CheckName, Verdict
from upgrader.images.modules import read_kernel, read_module
from upgrader.images.modules.checks import check_contents, check_symbols, check_vermagic, check_versions

PLAIN, GPL = "EXPORT_SYMBOL", "EXPORT_SYMBOL_GPL"
OFFERED = [
    ("kmalloc", 0x11, "vmlinux", PLAIN, ""),
    ("for_gpl", 0x22, "vmlinux", GPL, ""),
    ("dma_buf_get", 0x33, "vmlinux", GPL, "DMA_BUF"),
    ("without_crc", 0, "drivers/gpu/drm/drm", PLAIN, ""),
]


@pytest.fixture
def symbols(tmp_path):
    """The verdict about modules made of samples, on a kernel with the symbols above."""
    kernel = read_kernel(headers(tmp_path, OFFERED))

    def verdict(*samples):
        return check_symbols([read_module(sample.write(tmp_path)) for sample in samples], kernel)

    return verdict


def test_a_module_whose_imports_are_offered_with_their_crcs_passes(symbols):
    known = {"kmalloc": 0x11, "for_gpl": 0x22, "dma_buf_get": 0x33, "without_crc": 9}
    assert symbols(Sample(imports=known, import_ns=["DMA_BUF"], weak=["nowhere"])) == Verdict(
        check=CheckName.CRC,
        passed=True,
        reason=f"6 symbols imported by 1 modules are as {RELEASE} and the siblings export them",
    )


@pytest.mark.parametrize(
    ("sample", "symbol", "said"),
    [
        (Sample(layout=1), "module_layout", "1 of 1 imported symbols have another CRC in"),
        (Sample(imports={"kmalloc": 0x12}), "kmalloc", "1 of 2 imported symbols have another CRC in"),
        (Sample(longer={"kmalloc": 0x12}), "kmalloc", "1 of 2 imported symbols have another CRC in"),
        (Sample(imports={"nowhere": 1}), "nowhere", "1 of 2 imported symbols are exported neither by a sibling nor by"),
        (
            Sample(imports={"kmalloc": None}),
            "kmalloc",
            "1 of 2 imported symbols have a CRC, which the module lacks, in",
        ),
        (
            Sample(layout=None),
            "module_layout",
            "1 of 1 imported symbols have a CRC, which the module lacks, in",
        ),
        (
            Sample(imports={"for_gpl": 0x22}, license="NVIDIA"),
            "for_gpl",
            "1 of 2 imported symbols are only for GPL modules in",
        ),
        (
            Sample(imports={"dma_buf_get": 0x33}),
            "dma_buf_get",
            "1 of 2 imported symbols are of a namespace that the module does not import in",
        ),
    ],
)
def test_each_reason_to_refuse_a_symbol_is_told_with_its_name(symbols, sample, symbol, said):
    reason = f"sample.ko: {said} {RELEASE}: {symbol}"
    assert symbols(sample) == Verdict(check=CheckName.CRC, passed=False, reason=reason, symbols=(symbol,))


def test_ten_symbols_are_named_and_the_rest_counted(symbols):
    verdict = symbols(Sample(imports={f"gone_{at:02}": at for at in range(25)}))
    assert verdict.symbols == tuple(f"gone_{at:02}" for at in range(10))
    assert verdict.reason == (
        "sample.ko: 25 of 26 imported symbols are exported neither by a sibling nor by 6.1.0-50-amd64: "
        + ", ".join(f"gone_{at:02}" for at in range(10))
        + " and 15 more"
    )


def test_siblings_offer_symbols_to_each_other_with_their_own_crcs(symbols):
    core = Sample(name="nvidia", exports=[("nv_open", 5, False, "")])
    assert symbols(core, Sample(name="nvidia-uvm", imports={"nv_open": 5})).passed
    stale = symbols(core, Sample(name="nvidia-uvm", imports={"nv_open": 6}))
    assert (stale.passed, stale.symbols) == (False, ("nv_open",))
    assert not symbols(Sample(name="nvidia-uvm", imports={"nv_open": 5})).passed


def test_who_imports_from_a_proprietary_module_may_not_use_gpl_symbols(symbols):
    blob = Sample(name="nvidia", license="NVIDIA", exports=[("nv_open", 5, False, "")])
    middle = Sample(name="middle", imports={"nv_open": 5}, exports=[("mid", 6, False, "")])
    outer = Sample(name="outer", imports={"mid": 6, "for_gpl": 0x22})
    verdict = symbols(blob, middle, outer)
    assert (verdict.passed, verdict.symbols) == (False, ("for_gpl",))
    assert symbols(Sample(name="nvidia", exports=blob.exports), middle, outer).passed


@pytest.mark.parametrize(
    ("sample", "passed"),
    [
        (Sample(), True),
        (Sample(release="6.1.0-47-amd64"), True),  # CRCs decide, as in the kernel
        (Sample(release="6.1.0-47-amd64", layout=None), False),
        (Sample(layout=None), True),
        (Sample(flags="SMP preempt_rt mod_unload modversions "), False),
        (Sample(flags=FLAGS.strip()), False),
        (Sample(machine=AARCH64), False),
    ],
    ids=["own", "older, with CRCs", "older, without CRCs", "own, without CRCs", "real-time", "cut", "other machine"],
)
def test_vermagic_is_compared_as_the_kernel_does(tmp_path, sample, passed):
    kernel = read_kernel(headers(tmp_path))
    verdict = check_vermagic([read_module(sample.write(tmp_path))], kernel)
    assert verdict.passed is passed
    assert ("sample.ko" in verdict.reason) is not passed


def test_expected_modules_have_to_be_there_once(tmp_path):
    one, two = (read_module(Sample(name=name).write(tmp_path)) for name in ("nvidia", "nvidia-uvm"))
    assert check_contents([one, two], ["nvidia", "nvidia-uvm"]) == Verdict(
        check=CheckName.CONTENTS, passed=True, reason="2 modules: nvidia, nvidia_uvm"
    )
    assert check_contents([one], ["nvidia", "nvidia-uvm", "nvidia-drm"]) == Verdict(
        check=CheckName.CONTENTS, passed=False, reason="nvidia_drm, nvidia_uvm missing"
    )
    assert check_contents([one, one], ["nvidia"]).reason == "nvidia twice"


def test_a_recipe_whose_order_is_not_that_of_the_modules_dependencies_fails(tmp_path):
    nvidia = read_module(Sample(name="nvidia", depends=["drm"]).write(tmp_path))
    drm = read_module(Sample(name="nvidia-drm", depends=["drm", "nvidia"]).write(tmp_path))
    assert check_contents([drm, nvidia], ["nvidia", "nvidia-drm"]).passed
    assert check_contents([nvidia, drm], ["nvidia-drm", "nvidia"]) == Verdict(
        check=CheckName.CONTENTS, passed=False, reason="nvidia_drm is loaded before nvidia, which it depends on"
    )
    assert not check_contents([nvidia, drm], ["nvidia-drm"]).passed


def test_modules_libraries_and_firmware_are_of_one_version(tmp_path):
    module = read_module(Sample(version="535.261.03").write(tmp_path))
    assert check_versions("535.261.03", [module], {"lib.so.535.261.03": "535.261.03"}).passed
    verdict = check_versions("535.261.03", [module], {"libcuda.so": "535.309.01", "firmware": "535.261.03"})
    assert verdict == Verdict(
        check=CheckName.VERSIONS,
        passed=False,
        reason="libcuda.so has version 535.309.01, the driver has 535.261.03",
    )
    unversioned = read_module(Sample(version="").write(tmp_path))
    assert "sample.ko has version none" in check_versions("535.261.03", [unversioned], {}).reason
