import pytest

from tests.support.kernel_modules import LAYOUT, RELEASE, headers
from upgrader.core.errors import ConfigurationError
from upgrader.images.modules import Export, KernelInterface, read_kernel


def test_a_kernel_is_read_from_its_headers(tmp_path):
    lines = [
        ("drm_open", 0xFF, "drivers/gpu/drm/drm", "EXPORT_SYMBOL_GPL", "DRM"),
        ("bare", 0, "vmlinux", "EXPORT_SYMBOL", ""),
    ]
    assert read_kernel(headers(tmp_path, lines)) == KernelInterface(
        release=RELEASE,
        machine="EM_X86_64",
        vermagic=f"{RELEASE} SMP preempt mod_unload modversions ",
        exports={
            "module_layout": Export(crc=LAYOUT, gpl=False, owner="vmlinux"),
            "drm_open": Export(crc=0xFF, gpl=True, namespace="DRM", owner="drivers/gpu/drm/drm"),
            "bare": Export(crc=None, gpl=False, owner="vmlinux"),
        },
    )


@pytest.mark.parametrize(
    ("change", "vermagic"),
    [
        (("PREEMPT_BUILD=y", "PREEMPT_RT=y"), "SMP preempt_rt mod_unload modversions "),
        (("CONFIG_PREEMPT_BUILD=y\n", ""), "SMP mod_unload modversions "),
        (("X86_64=y", "ARM64=y"), "SMP preempt mod_unload modversions aarch64 "),
    ],
)
def test_vermagic_follows_the_configuration(tmp_path, change, vermagic):
    tree = headers(tmp_path)
    config = tree / ".config"
    config.write_text(config.read_text().replace(*change))
    assert read_kernel(tree).vermagic == f"{RELEASE} {vermagic}"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (".config", "CONFIG_X86_64=y\n", "cannot be checked for 6.1.0-50-amd64"),
        (".config", "CONFIG_X86_64=y\nCONFIG_MODVERSIONS=y\nCONFIG_RANDSTRUCT=y\n", "cannot be checked"),
        ("include/generated/utsrelease.h", "", "does not contain the kernel"),
        ("Module.symvers", "0x12345678\tcut off", "line 1 is not an exported symbol"),
        ("Module.symvers", None, "is this an unpacked linux-headers package"),
    ],
)
def test_headers_that_cannot_be_used_are_refused(tmp_path, file, text, said):
    tree = headers(tmp_path)
    (tree / file).unlink() if text is None else (tree / file).write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read_kernel(tree)
