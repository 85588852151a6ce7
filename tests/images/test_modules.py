"""Modules that were compiled for real kernels, checked and booted: what passes and each way to be refused."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.real_kernels import newest_and_oldest
from tests.support.repository import ROOT
from tests.support.signing_keys import make_key
from upgrader.core.driver_build.driver_builds import CheckName
from upgrader.images.boot import ENFORCE_SIGNATURES, boot_modules
from upgrader.images.modules import (
    ModuleUnreadableError,
    open_key,
    read_kernel,
    read_module,
    sign_module,
    verify_modules,
)
from upgrader.images.modules.checks import check_symbols, check_vermagic
from upgrader.images.modules.reading import _parse_module
from upgrader.process import run

pytestmark = [pytest.mark.images, pytest.mark.timeout(600)]

SOURCE = (ROOT / "driver-images/fakebridge/fakebridge.c").read_text()
ASK = "root = pci_scan_root_bus("


def _with(statement, before="", domain=0x1000):
    """The source with a statement in its beginning, functions before it, and a PCI domain that no other has."""
    source = SOURCE.replace("#define DOMAIN 0x1000", f"{before}\n#define DOMAIN {domain}")
    assert source.count(before + "\n#define DOMAIN") == source.count(ASK) == 1
    return source.replace(ASK, f"{statement}\n\t{ASK}")


ORPHAN = _with("if (nobody_has_this()) return -EIO;", "extern int nobody_has_this(void);")
PANICS = _with('panic("as the test asked");')
LENDER = _with("", "int lent(int a) { return a; }\nEXPORT_SYMBOL_GPL(lent);", 0x2000)
CHANGED = _with("", "long lent(long a, long b) { return a + b; }\nEXPORT_SYMBOL_GPL(lent);")
BORROWER = _with("if (lent(1) != 1) return -EIO;", "extern int lent(int a);", 0x3000)


@pytest.fixture(scope="module")
def kernels(catalog):
    return newest_and_oldest(catalog)


@pytest.fixture(scope="module")
def new(kernels):
    return kernels[0]


@pytest.fixture(scope="module")
def modules(kernels, tmp_path_factory):
    """By name. `stale` was compiled for the old kernel, all others for the new one."""
    new, old = kernels
    folder = tmp_path_factory.mktemp("modules")
    made = new.compile(
        folder / "new", fakebridge=SOURCE, orphan=ORPHAN, panics=PANICS, lender=LENDER, borrower=BORROWER
    )
    made["changed"] = new.compile(folder / "changed", lender=CHANGED)["lender"]
    return made | old.compile(folder / "old", stale=SOURCE)


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return make_key(tmp_path_factory.mktemp("key"))


def _verdicts(kernel, *paths, certificate=None):
    verdicts = verify_modules(paths, headers=kernel.headers, driver="1.0", expected=[], certificate=certificate)
    return {verdict.check: verdict for verdict in verdicts}


def test_a_module_passes_on_its_own_kernel(new, modules):
    passed = {check: verdict.passed for check, verdict in _verdicts(new, modules["fakebridge"]).items()}
    assert passed.pop(CheckName.SIGNATURE) is None
    assert set(passed.values()) == {True}


def test_a_module_of_another_kernel_is_refused_for_its_crcs_and_not_for_its_vermagic(kernels, modules):
    new, old = kernels
    verdicts = _verdicts(new, modules["stale"])
    assert old.release in modules["stale"].read_bytes().decode("latin-1")
    assert verdicts[CheckName.VERMAGIC].passed
    assert not verdicts[CheckName.CRC].passed
    assert verdicts[CheckName.CRC].symbols[0] == "module_layout"
    assert _verdicts(old, modules["stale"])[CheckName.CRC].passed


def test_a_symbol_that_nobody_offers_is_named(new, modules):
    verdict = _verdicts(new, modules["orphan"])[CheckName.CRC]
    assert (verdict.passed, verdict.symbols) == (False, ("nobody_has_this",))


def test_a_siblings_symbols_count_with_the_crcs_that_it_has_now(new, modules):
    assert _verdicts(new, modules["lender"], modules["borrower"])[CheckName.CRC].passed
    changed = _verdicts(new, modules["changed"], modules["borrower"])[CheckName.CRC]
    assert (changed.passed, changed.symbols) == (False, ("lent",))


def test_the_kernels_own_modules_pass_and_export_what_its_symvers_says(new):
    kernel = read_kernel(new.headers)
    owners = {}
    for name, export in kernel.exports.items():
        owners.setdefault(export.owner.rpartition("/")[2].replace("-", "_"), {})[name] = export
    paths = sorted(new.boot().modules.rglob("*.ko*"))[::10]
    assert len(paths) > 50
    for path in paths:
        module = read_module(path)
        assert check_vermagic([module], kernel).passed, path
        assert check_symbols([module], kernel).passed, path
        exports = {name: (one.crc, one.gpl, one.namespace) for name, one in module.exports.items()}
        told = {name: (one.crc, one.gpl, one.namespace) for name, one in owners.get(module.name, {}).items()}
        assert exports == told, path
        assert module.signature is not None, path


def test_a_real_module_with_bytes_changed_or_cut_off_is_read_or_refused(modules):
    whole = modules["fakebridge"].read_bytes()

    @given(st.integers(0, len(whole) - 1), st.binary(min_size=1, max_size=8), st.booleans())
    def check(at, change, cut):
        try:
            _parse_module("x.ko", whole[:at] if cut else whole[:at] + change + whole[at + len(change) :])
        except ModuleUnreadableError:
            return

    check()


def test_our_signature_is_byte_for_byte_that_of_the_kernels_own_program(new, modules, key, tmp_path):
    by_upgrader, by_kernel = tmp_path / "by-upgrader.ko", tmp_path / "by-kernel.ko"
    for path in (by_upgrader, by_kernel):
        path.write_bytes(modules["fakebridge"].read_bytes())
    sign_module(by_upgrader, open_key(*key))
    run([new.sign_file, "sha256", *key, by_kernel], timeout=60)
    assert by_upgrader.read_bytes() == by_kernel.read_bytes()
    assert _verdicts(new, by_kernel, certificate=key[1])[CheckName.SIGNATURE].passed


def test_the_kernel_takes_its_module(new, modules):
    verdict, boot = boot_modules(new.boot(), [modules["fakebridge"], modules["borrower"], modules["lender"]])
    assert verdict.passed, f"{verdict.reason}\n{boot.console}"
    assert [load.file for load in boot.loads] == ["fakebridge.ko", "lender.ko", "borrower.ko"]
    assert f"Linux version {new.release}" in boot.console


def test_the_kernel_refuses_what_the_check_of_crcs_refuses(new, modules):
    verdict, boot = boot_modules(new.boot(), [modules["stale"], modules["orphan"]])
    assert {load.file: load.errno for load in boot.loads} == {"stale.ko": errno.ENOEXEC, "orphan.ko": errno.ENOENT}
    assert "stale.ko: ENOEXEC (Exec format error): " in verdict.reason
    assert "disagrees about version of symbol module_layout" in verdict.reason
    assert "orphan.ko: ENOENT (No such file or directory): " in verdict.reason
    assert "Unknown symbol nobody_has_this" in verdict.reason


def test_a_kernel_that_enforces_signatures_takes_its_own_and_reports_why_it_refuses_another(
    new, modules, key, tmp_path
):
    own = next(path for path in sorted(new.boot().modules.rglob("dummy.ko*")))
    unsigned, signed = tmp_path / "dummy.ko", tmp_path / "lender.ko"
    unsigned.write_bytes(own.read_bytes())
    signed.write_bytes(modules["lender"].read_bytes())
    sign_module(signed, open_key(*key))
    given = [unsigned, modules["fakebridge"], signed]
    verdict, boot = boot_modules(new.boot(), given, arguments=ENFORCE_SIGNATURES)
    answers = {load.file: (load.errno, load.printed[-1:]) for load in boot.loads}
    assert not verdict.passed
    assert answers == {
        "dummy.ko": (0, ()),
        "fakebridge.ko": (errno.EKEYREJECTED, ("Loading of unsigned module is rejected",)),
        # the signature itself is in order: only nobody has told this kernel of the key
        "lender.ko": (errno.EKEYREJECTED, ("Loading of module with unavailable key is rejected",)),
    }


def test_a_module_that_panics_fails_with_the_kernels_last_words(new, modules):
    verdict, boot = boot_modules(new.boot(), [modules["panics"]])
    assert not verdict.passed
    assert "Kernel panic - not syncing: as the test asked; panics.ko: the kernel did not respond\n" in verdict.reason
    assert boot.seconds < 60
