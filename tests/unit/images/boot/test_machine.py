"""Whether KVM is used: asked of a machine that is a script, once."""

import pytest

from upgrader.images.boot import machine, tsc


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ('echo "[    0.0] Linux version 6.1" > "$console"', machine.KVM),
        ('echo "Booting from ROM.." > "$console"', machine.EMULATED),
        ("exit 0", machine.EMULATED),
        ("echo 'error: failed to set MSR 0x10a' >&2; exit 134", machine.EMULATED),
    ],
    ids=["the kernel speaks", "only the firmware speaks", "silence", "abort"],
)
def test_kvm_is_used_where_a_kernel_speaks_and_asked_once(qemu, tmp_path, script, found):
    log, device = qemu(script, said="."), tmp_path / "kvm"
    assert machine.choose_accelerator(tmp_path / "vmlinuz", device=device) == machine.EMULATED
    device.write_text("")
    assert machine.choose_accelerator(tmp_path / "vmlinuz", device=device) == found
    assert machine.choose_accelerator(tmp_path / "vmlinuz", device=device) == found
    assert log.read_text() == ".\n"


@pytest.mark.skipif(not tsc.kernel_argument(), reason="a machine whose counter cannot be read tells its guests nothing")
def test_only_an_emulated_machines_kernel_is_told_how_fast_its_counter_runs(qemu, tmp_path):
    log = qemu("exit 0")
    for accelerator in (machine.EMULATED, machine.KVM):
        machine.run_kernel(
            tmp_path / "vmlinuz",
            None,
            accelerator=accelerator,
            arguments="init=/check",
            console=tmp_path / "console",
            timeout=20,
        )

    emulated, kvm = log.read_text().splitlines()
    assert emulated.endswith(f" {tsc.kernel_argument()} init=/check")
    assert tsc.kernel_argument() not in kvm
    assert kvm.endswith(" init=/check")
