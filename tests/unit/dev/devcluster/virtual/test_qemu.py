import io
import tarfile
from pathlib import Path

import msgspec
import pytest

from upgrader.images.boot import machine
from upgrader_dev.devcluster.virtual import qemu

MADE = qemu.Machine(
    mark="token:vm-a",
    accelerator=machine.EMULATED,
    folder=Path("/c/vm-a"),
    disk=Path("/c/vm-a/disk.qcow2"),
    seed=Path("/c/vm-a/seed.tar"),
    shared=Path("/c/shared"),
    tap="upg70-12",
    mac="02:42:0a:46:00:0c",
    memory_mib=1024,
)


def option(words, name):
    return [words[index + 1] for index, word in enumerate(words) if word == name]


def test_the_mark_is_a_word_of_its_own():
    assert "token:vm-a" in qemu.machine_command(MADE)


def test_a_machine_boots_from_its_own_disk_and_starts_again_after_a_reset():
    words = qemu.machine_command(MADE)

    assert option(words, "-device")[:2] == [
        "virtio-blk-pci,drive=root,bootindex=0",
        "virtio-blk-pci,drive=seed,bootindex=1",
    ]
    assert option(words, "-drive") == [
        "file=/c/vm-a/disk.qcow2,format=qcow2,if=none,id=root,cache=unsafe",
        "file=/c/vm-a/seed.tar,format=raw,if=none,id=seed,readonly=on",
    ]
    assert not {"-kernel", "-no-reboot", "-append"} & set(words)


def test_a_disk_with_container_images_is_the_third_and_nobody_boots_from_it():
    words = qemu.machine_command(msgspec.structs.replace(MADE, images=Path("/c/vm-a/images.qcow2")))

    assert option(words, "-drive")[2:] == ["file=/c/vm-a/images.qcow2,format=qcow2,if=none,id=images,cache=unsafe"]
    assert option(words, "-device")[2] == "virtio-blk-pci,drive=images"


def test_its_card_is_on_the_clusters_bridge_with_an_address_of_its_own():
    words = qemu.machine_command(MADE)

    assert option(words, "-netdev") == ["tap,id=net,ifname=upg70-12,script=no,downscript=no"]
    assert "virtio-net-pci,netdev=net,mac=02:42:0a:46:00:0c,romfile=" in words


def test_the_console_is_kept_over_all_boots():
    console = next(word for word in qemu.machine_command(MADE) if "id=console" in word)

    assert console.endswith("logfile=/c/vm-a/console.log,logappend=on")


@pytest.mark.parametrize(
    ("how", "word", "processors"), [(machine.KVM, "kvm", "2"), (machine.EMULATED, "tcg,tb-size=1024", "1")]
)
def test_kvm_only_where_a_kernel_was_seen_to_run_under_it(how, word, processors):
    words = qemu.machine_command(msgspec.structs.replace(MADE, accelerator=how))

    assert (option(words, "-accel"), option(words, "-smp")) == ([word], [processors])


def test_a_comma_in_a_path_is_no_end_of_an_option():
    words = qemu.machine_command(msgspec.structs.replace(MADE, shared=Path("/c,d/shared")))

    assert option(words, "-virtfs")[0].startswith("local,path=/c,,d/shared,mount_tag=shared,")


def test_the_second_disk_is_the_same_for_the_same_files_and_for_root_alone():
    made = qemu.seed_disk({"b": b"2", "a/x": b"1"})

    assert made == qemu.seed_disk({"a/x": b"1", "b": b"2"})
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        assert [(one.name, one.mode, one.uid, archive.extractfile(one).read()) for one in archive] == [
            ("a/x", 0o600, 0, b"1"),
            ("b", 0o600, 0, b"2"),
        ]


def test_an_order_is_what_grub_reads():
    assert qemu.boot_order("17", "gnulinux-6.1.0-50-amd64") == b"set order=17\nset wanted=gnulinux-6.1.0-50-amd64\n"


def test_what_a_kernel_is_told_of_its_machine_is_a_file_that_the_boot_loader_reads():
    assert qemu.kernel_facts("tsc_early_khz=2596128") == {
        "machine.cfg": b'set machine="norandmaps highres=off tsc_early_khz=2596128"\n'
    }
    assert qemu.kernel_facts("") == {"machine.cfg": b'set machine="norandmaps highres=off"\n'}
