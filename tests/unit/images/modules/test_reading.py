import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernel_modules import FLAGS, LAYOUT, RELEASE, Sample
from upgrader.images.modules import Export, ModuleFile, ModuleUnreadableError, SignatureFacts, read_module
from upgrader.images.modules.reading import _parse_module
from upgrader.images.modules.trailer import MARK, find_signature, with_signature

WHOLE = Sample(
    name="nvidia-uvm",
    version="535.261.03",
    license="Dual MIT/GPL",
    depends=("nvidia", "drm-core"),
    import_ns=("DMA_BUF",),
    imports={"kmalloc": 0x12345678, "nvUvmInterface": None},
    weak=("maybe",),
    exports=[("offered", 0xCAFEBABE, False, ""), ("own", 1, True, "NV_SPACE"), ("bare", None, False, "")],
    longer={"a_symbol_of_more_than_fifty_six_bytes_as_rust_mangles_them_today": 7},
)
READ = ModuleFile(
    file="nvidia-uvm.ko",
    name="nvidia_uvm",
    machine="EM_X86_64",
    vermagic=f"{RELEASE} {FLAGS}",
    version="535.261.03",
    srcversion="",
    license="Dual MIT/GPL",
    depends=("nvidia", "drm_core"),
    import_ns=("DMA_BUF",),
    versions={
        "module_layout": LAYOUT,
        "kmalloc": 0x12345678,
        "a_symbol_of_more_than_fifty_six_bytes_as_rust_mangles_them_today": 7,
    },
    undefined=frozenset(
        {
            "kmalloc",
            "nvUvmInterface",
            "maybe",
            "a_symbol_of_more_than_fifty_six_bytes_as_rust_mangles_them_today",
        }
    ),
    weak=frozenset({"maybe"}),
    exports={
        "offered": Export(crc=0xCAFEBABE, gpl=False, owner="nvidia_uvm"),
        "own": Export(crc=1, gpl=True, namespace="NV_SPACE", owner="nvidia_uvm"),
        "bare": Export(crc=None, gpl=False, owner="nvidia_uvm"),
    },
    signature=None,
)


def test_a_module_is_read_whole(tmp_path):
    assert read_module(WHOLE.write(tmp_path)) == READ


def test_crcs_may_be_the_values_of_symbols(tmp_path):
    before = Sample(exports=[("one", 0xDEADBEEF, False, "")], absolute=True)
    assert read_module(before.write(tmp_path)).exports["one"].crc == 0xDEADBEEF


def test_a_compressed_module_is_read_like_the_plain_one(tmp_path):
    path = tmp_path / "nvidia-uvm.ko.xz"
    path.write_bytes(lzma.compress(WHOLE.encoded(), check=lzma.CHECK_CRC32))
    assert read_module(path).versions == READ.versions
    path.write_bytes(lzma.compress(WHOLE.encoded())[:-20])
    with pytest.raises(ModuleUnreadableError, match=r"nvidia-uvm\.ko\.xz"):
        read_module(path)


def test_a_signature_is_found_and_not_taken_for_the_module(tmp_path):
    path = WHOLE.write(tmp_path)
    plain = path.read_bytes()
    path.write_bytes(with_signature(plain, b"a message"))
    read = read_module(path)
    assert read.signature == SignatureFacts(content=len(plain), pkcs7=b"a message")
    assert read.exports == READ.exports


@pytest.mark.parametrize(
    "end",
    [
        MARK,
        bytes(12) + MARK,
        b"sig" + bytes([0, 0, 2, 0, 0, 0, 0, 0, 255, 255, 255, 255]) + MARK,
        b"sig" + bytes([0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 3]) + MARK,
    ],
    ids=["no length", "length 0", "longer than the file", "not PKCS#7"],
)
def test_a_damaged_signature_is_said(end):
    with pytest.raises(ModuleUnreadableError, match="signature"):
        find_signature(WHOLE.encoded() * (end != MARK) + end)


def _larger_than_the_file(data):
    """The second section (the first has no contents) says that it has as many bytes as the number can hold."""
    size = int.from_bytes(data[40:48], "little") + 64 + 32
    return data[:size] + b"\xff" * 8 + data[size + 8 :]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not an ELF file"),
        (b"#!/bin/sh\n", "not an ELF file"),
        (b"\x7fELF" + bytes([2, 2, 1]) + bytes(57), "64-bit little-endian"),
        (b"\x7fELF" + bytes([1, 1, 1]) + bytes(57), "64-bit little-endian"),
        (Sample().encoded()[:-1], "damaged or truncated"),
        (_larger_than_the_file(Sample().encoded()), "a section is outside of the file"),
        (Sample().encoded().replace(b"vermagic=", b"nothing==", 1), "not a kernel module"),
    ],
    ids=["empty", "a script", "big-endian", "32 bit", "cut off", "a size that is not true", "no vermagic"],
)
def test_what_is_no_module_is_refused_with_a_sentence(tmp_path, data, said):
    path = tmp_path / "x.ko"
    path.write_bytes(data)
    with pytest.raises(ModuleUnreadableError, match=said) as refused:
        read_module(path)
    assert str(refused.value).startswith(f"{path}: ")


def test_a_module_that_is_not_there_or_a_folder_is_refused(tmp_path):
    for path in (tmp_path / "absent.ko", tmp_path):
        with pytest.raises(ModuleUnreadableError, match="cannot be read"):
            read_module(path)


def _read_or_refused(data):
    try:
        return _parse_module("x.ko", data)
    except ModuleUnreadableError:
        return None


@given(st.data())
def test_a_module_with_bytes_changed_is_read_or_refused_and_nothing_else(data):
    whole = bytearray(WHOLE.encoded())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    _read_or_refused(bytes(whole))


@given(st.integers(0, len(WHOLE.encoded()) - 1))
def test_a_module_cut_off_anywhere_is_refused(end):
    assert _read_or_refused(WHOLE.encoded()[:end]) is None


@given(st.binary(max_size=300))
def test_any_bytes_behind_an_elf_head_are_read_or_refused(rest):
    _read_or_refused(WHOLE.encoded()[:20] + rest)
    _read_or_refused(rest)
