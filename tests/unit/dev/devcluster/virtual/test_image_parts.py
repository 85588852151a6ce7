"""The parts of the image that are bytes alone: first file system, disk, boot menu, choice of kernels."""

import os
import struct
import time
from pathlib import Path

import pytest

from tests.support.disks import differing
from upgrader.core.errors import DevClusterError
from upgrader.images.debian.values import DebianKernel, Package
from upgrader.process import run
from upgrader.process.daemon import is_alive, start_daemon
from upgrader.process.waiting import wait_until_true
from upgrader_dev.devcluster.base import versions
from upgrader_dev.devcluster.virtual import disk, initramfs, kernels, preloaded, rootfs
from upgrader_dev.devcluster.virtual.image import UNUSED_SECONDS, Image, sweep_images


def kernel(release, os="bookworm", flavour="amd64"):
    package = Package(
        name=f"linux-image-{release}",
        version="6.1.1-1",
        arch="amd64",
        sha256="0" * 64,
        size=1,
        archive="debian",
        path="pool/x.deb",
        suites=(os,),
    )
    return DebianKernel(
        release=release,
        os=os,
        arch="amd64",
        flavour=flavour,
        compiler="gcc-12",
        headers=(package,),
        image=(package,),
    )


def releases(*offered, suite="bookworm"):
    return [one.release for one in kernels.choose_kernels(offered, suite)]


def test_the_pinned_kernels_are_taken_while_the_archive_has_them():
    offered = [kernel("6.1.0-56-amd64"), *(kernel(one) for one in reversed(kernels.PINNED))]

    assert releases(*offered) == list(kernels.PINNED)


def test_else_the_two_newest_of_the_same_distribution_and_flavour():
    offered = [
        kernel("6.1.0-50-amd64"),
        kernel("6.1.0-9-amd64"),
        kernel("6.1.0-56-amd64"),
        kernel("6.1.0-57-cloud-amd64", flavour="cloud-amd64"),
        kernel("6.12.1+deb13-amd64", os="trixie"),
    ]

    assert releases(*offered) == ["6.1.0-50-amd64", "6.1.0-56-amd64"]


def test_one_kernel_is_too_few():
    with pytest.raises(DevClusterError, match=r"two kernels of bookworm, and its archive has 6\.1\.0-50-amd64"):
        releases(kernel("6.1.0-50-amd64"))


def test_grub_is_told_names_that_it_does_not_take_for_numbers():
    menu = rootfs.boot_menu(["6.1.0-47-amd64", "6.1.0-50-amd64"])

    assert rootfs.grub_entry("6.1.0-50-amd64") == "gnulinux-6.1.0-50-amd64"
    assert "menuentry 'Linux 6.1.0-50-amd64' --id 'gnulinux-6.1.0-50-amd64' {" in menu
    assert menu.count("linux /boot/vmlinuz-6.1.0-47-amd64 root=/dev/vda1 ") == 1
    assert menu.count(" $machine\n") == 2  # what files/grub.cfg has read from the second disk
    assert menu.count("initrd /boot/initrd-6.1.0-47-amd64\n") == 1


def test_the_first_file_system_is_one_that_cpio_reads_and_always_the_same(tmp_path):
    files = {"modules/b.ko": (b"12345", 0o100644), "init": (b"#!/bin/sh\n", 0o100755)}
    made = initramfs.make_cpio(files, ("dev", "modules"))
    assert made == initramfs.make_cpio(dict(reversed(files.items())), ("dev", "modules"))
    (tmp_path / "a.cpio").write_bytes(made)

    run(["busybox", "cpio", "-i", "-d", "-F", tmp_path / "a.cpio"], timeout=20, cwd=tmp_path)

    assert (tmp_path / "modules/b.ko").read_bytes() == b"12345"
    assert (tmp_path / "init").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "dev").is_dir()


def test_the_boot_sector_keeps_grubs_code_and_has_one_partition():
    boot = bytes(range(256)) * 2
    area = disk.assemble_area(boot, b"core")

    flag, _, sort, _, first, count = struct.unpack("<B3sB3sII", area[446:462])
    assert (area[:446], area[510:512], area[512:]) == (boot[:446], b"\x55\xaa", b"core")
    assert (flag, sort, first * disk.SECTOR, (first + count) * disk.SECTOR) == (0x80, 0x83, 2**20, disk.SIZE)
    assert area[462:510] == bytes(48)


def test_a_core_that_would_reach_into_the_partition_is_refused():
    fits = disk.FIRST_SECTOR * disk.SECTOR - disk.SECTOR

    disk.assemble_area(bytes(512), bytes(fits))
    with pytest.raises(DevClusterError, match="does not fit before the first partition"):
        disk.assemble_area(bytes(512), bytes(fits + 1))


def test_what_the_image_does_not_have_is_refused_before_anything_is_started(tmp_path):
    image = Image(folder=tmp_path, kernels=("6.1.0-47-amd64", "6.1.0-50-amd64"))

    image.check(kernel="", kubelet=versions.KUBELETS[0])
    image.check(kernel="6.1.0-47-amd64", kubelet=versions.KUBELETS[-1])
    with pytest.raises(DevClusterError, match=r"no kernel 6\.1\.0-1-amd64"):
        image.check(kernel="6.1.0-1-amd64", kubelet=versions.KUBELETS[0])
    with pytest.raises(DevClusterError, match=r"no kubelet 1\.2\.3"):
        image.check(kernel="", kubelet="1.2.3")


def test_images_that_nobody_uses_any_more_are_deleted(tmp_path):
    kept, stale, again = (tmp_path / f"image-{name}" for name in ("kept", "stale", "again"))
    long_ago = time.time() - UNUSED_SECONDS - 1
    for folder in (kept, stale, again):
        folder.mkdir()
        (folder / "disk.img").touch()
    for folder in (stale, again):
        os.utime(folder, (long_ago, long_ago))
    Image(folder=again, kernels=()).record_use()

    assert sweep_images(tmp_path) == [stale]
    assert sorted(tmp_path.iterdir()) == [again, kept]


@pytest.fixture
def disks(tmp_path):
    """Disks with container images, by the seconds since they were used last."""
    ages = {"new": 0, "hour": 3600, "today": 86_000, "of-a-cluster": 90_000, "stale": 100_000}
    for name, age in ages.items():
        folder = tmp_path / f"container-images-{name}"
        folder.mkdir()
        (folder / "disk.img").touch()
        os.utime(folder, (time.time() - age,) * 2)
    return tmp_path


def test_of_disks_with_container_images_the_last_stay_and_those_of_clusters_and_of_the_last_day(disks, tmp_path):
    (tmp_path / "image-of-nodes").mkdir()
    os.utime(tmp_path / "image-of-nodes", (0, 0))

    gone = preloaded.sweep_disks(disks, [tmp_path / "container-images-of-a-cluster"])

    assert [folder.name for folder in gone] == ["container-images-stale"]
    assert sorted(folder.name for folder in tmp_path.iterdir()) == [
        "container-images-hour",
        "container-images-new",
        "container-images-of-a-cluster",
        "container-images-today",
        "image-of-nodes",
    ]


def test_where_it_is_not_known_what_clusters_have_no_disk_is_deleted(disks, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state/upgrader/broken").mkdir(parents=True)
    record = tmp_path / "state/upgrader/broken/cluster.json"
    record.write_text("{")
    said = []
    preloaded.tidy_disks(disks, said.append)
    there = len(list(disks.glob("container-images-*")))

    record.unlink()
    preloaded.tidy_disks(disks, said.append)

    assert (there, len(list(disks.glob("container-images-*")))) == (5, 3)
    assert said[0].startswith("virtual nodes' container images: none is deleted, since ")
    assert str(record) in said[0]


def test_of_a_disk_that_cannot_be_made_nothing_stays_nor_of_one_before(tmp_path):
    before = tmp_path / ".container-images-old.new"
    before.mkdir()
    orphan = start_daemon(["sh", "-c", "sleep 1000", str(before / "containerd.toml")], log=tmp_path / "log")
    broken = {"containerd": Path("/bin/false"), "ctr": Path("/bin/false")}

    with pytest.raises(DevClusterError, match="containerd does not start"):
        preloaded._make_disk(preloaded.PreloadedDisk(folder=tmp_path / "container-images-x"), (), broken, print)

    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert not is_alive(orphan)


def test_a_disk_with_container_images_is_used_with_the_nodes_own(tmp_path):
    (tmp_path / "images").mkdir()
    os.utime(tmp_path / "images", (0, 0))
    Image(folder=tmp_path, kernels=(), preloaded=preloaded.PreloadedDisk(folder=tmp_path / "images")).record_use()

    assert (tmp_path / "images").stat().st_mtime > 0


def test_the_same_tree_gives_the_same_disk_whenever_and_wherever_it_was_made(tmp_path):
    disks = []
    for name in ("first", "second"):
        tree = tmp_path / name
        (tree / "etc").mkdir(parents=True)
        for file in ("a", "b"):
            (tree / "etc" / file).write_text(file)
        rootfs.set_times(tree)
        disk.make_disk(b"boot", tree, tmp_path / f"{name}.img")
        made = int(time.time())
        assert wait_until_true(
            lambda made=made: int(time.time()) > made, seconds=2, every=0.01
        )  # files keep whole seconds
        disks.append(tmp_path / f"{name}.img")

    assert differing(*disks) == []
    assert [one.stat().st_size for one in disks] == [disk.SIZE, disk.SIZE]
    with disks[0].open("rb") as file:
        assert file.read(4) == b"boot"
