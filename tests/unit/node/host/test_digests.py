"""Checksums: each file is read once, and one that changed is read anew."""

import hashlib
import os

from upgrader.node.host.digests import Digests
from upgrader.process.atomic_file import copy_executable


def digest(contents):
    return hashlib.sha256(contents).hexdigest()


def test_a_file_is_read_once_whatever_its_name_is(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"kubelet")
    digests = Digests()
    assert digests.hex_digest(first) == digest(b"kubelet")
    facts = first.stat()
    first.rename(second)
    second.write_bytes(b"damaged")  # of the same size, and dated back: only who reads it again would see it
    os.utime(second, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert digests.hex_digest(second) == digest(b"kubelet")
    assert Digests().hex_digest(second) == digest(b"damaged")


def test_a_file_that_changed_is_read_anew(tmp_path):
    file = tmp_path / "kubelet"
    file.write_bytes(b"1.34.4")
    digests = Digests()
    assert digests.hex_digest(file) == digest(b"1.34.4")
    facts = file.stat()
    file.write_bytes(b"1.35.4")
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    assert digests.hex_digest(file) == digest(b"1.35.4")


def test_a_file_that_took_the_place_of_another_is_read(tmp_path):
    file, new = tmp_path / "kubelet", tmp_path / "new"
    file.write_bytes(b"1.34.4")
    new.write_bytes(b"1.35.4")
    digests = Digests()
    assert digests.hex_digest(file) == digest(b"1.34.4")
    copy_executable(new, file)
    assert digests.hex_digest(file) == digest(b"1.35.4")


def test_a_copy_is_not_read_again(tmp_path):
    source, target = tmp_path / "fetched", tmp_path / "installed"
    source.write_bytes(b"kubelet")
    digests = Digests()
    digests.copy_executable(source, target)
    facts = target.stat()
    assert (target.read_bytes(), facts.st_mode & 0o777) == (b"kubelet", 0o755)
    target.write_bytes(b"damaged")  # dated back, as above
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert digests.hex_digest(target) == digest(b"kubelet")
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    assert digests.hex_digest(target) == digest(b"damaged")
