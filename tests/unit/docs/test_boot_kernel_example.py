"""docs/examples/nodes/boot-kernel on GRUB menus: as Debian's update-grub writes them, and as a small image has one."""

import os
import shutil

import pytest

from tests.support.repository import ROOT
from upgrader.process import run

SCRIPT = ROOT / "docs/examples/nodes/boot-kernel"
SAVED = 'if [ "${next_entry}" ] ; then\n   set default="${next_entry}"\nelse\n   set default="${saved_entry}"\nfi\n'
HEAD = """\
function savedefault {
  if [ -z "${boot_once}" ]; then
    saved_entry="${chosen}"
  fi
}
if [ x"${feature_menuentry_id}" = xy ]; then
  menuentry_id_option="--id"
fi
"""
CLASSES = "--class debian --class gnu-linux --class os $menuentry_id_option"


def entry(title: str, identifier: str, release: str, indent: str = "") -> str:
    lines = [
        f"menuentry '{title}' {CLASSES} '{identifier}' {{",
        "\tload_video",
        "\tif [ x$grub_platform = xxen ]; then insmod xzio; fi",
        f"\techo\t'Loading Linux {release} ...'",
        f"\tlinux\t/boot/vmlinuz-{release} root=UUID=4f5e ro  quiet",
        f"\tinitrd\t/boot/initrd.img-{release}",
        "}",
    ]
    return "".join(f"{indent}{line}\n" for line in lines)


def advanced(*releases: str) -> str:
    inner = "".join(
        entry(f"Debian GNU/Linux, with Linux {one}{more}", f"gnulinux-{one}-{kind}-4f5e", one, "\t")
        for one in releases
        for more, kind in (("", "advanced"), (" (recovery mode)", "recovery"))
    )
    return (
        f"submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-4f5e' {{\n{inner}}}\n"
    )


NEW, OLD, PLUS = "6.1.0-50-amd64", "6.1.0-47-amd64", "6.12.94+deb13-amd64"
DEBIAN = SAVED + HEAD + entry("Debian GNU/Linux", "gnulinux-simple-4f5e", NEW) + advanced(NEW, OLD, PLUS)
AFTER = DEBIAN + entry("Rescue", "rescue", "6.1.0-1-amd64")
SMALL = SAVED + "".join(
    f"menuentry 'Linux {one}' --id 'gnulinux-{one}' {{\n  linux /boot/vmlinuz-{one} root=/dev/vda1\n}}\n"
    for one in (OLD, NEW)
)
SHELLS = [pytest.param(["sh"], id="sh"), pytest.param(["busybox", "sh"], id="busybox")]


@pytest.fixture
def chosen(tmp_path):
    """Runs the script over a menu; exit code, what was said, and what grub-set-default was given."""

    def choose(menu, *words, shell=("sh",)):
        (tmp_path / "grub.cfg").write_text(menu)
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        (programs / "grub-set-default").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/given\n')
        (programs / "grub-set-default").chmod(0o755)
        if shell[0] == "busybox":
            (programs / "awk").unlink(missing_ok=True)
            (programs / "awk").symlink_to(shutil.which("busybox"))
        env = {"PATH": f"{programs}:{os.environ['PATH']}", "GRUB_MENU": str(tmp_path / "grub.cfg")}
        ended = run([*shell, SCRIPT, *words], timeout=20, env=env, check=False)
        given = tmp_path / "given"
        return ended.code, ended.stderr.decode(), given.read_text().strip() if given.exists() else None

    return choose


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("menu", "release", "expected"),
    [
        (DEBIAN, NEW, f"gnulinux-advanced-4f5e>gnulinux-{NEW}-advanced-4f5e"),
        (DEBIAN, OLD, f"gnulinux-advanced-4f5e>gnulinux-{OLD}-advanced-4f5e"),
        (DEBIAN, PLUS, f"gnulinux-advanced-4f5e>gnulinux-{PLUS}-advanced-4f5e"),
        (AFTER, "6.1.0-1-amd64", "rescue"),
        (SMALL, OLD, f"gnulinux-{OLD}"),
        (SMALL, NEW, f"gnulinux-{NEW}"),
    ],
)
def test_the_entry_of_a_kernel_becomes_the_saved_one(chosen, shell, menu, release, expected):
    assert chosen(menu, release, shell=shell) == (0, "", expected)


@pytest.mark.parametrize("release", ["6.1.0-5-amd64", "6.1.0-50", "6.1.0.47-amd64", ".*", "$(touch x)"])
def test_a_kernel_without_an_entry_is_refused(chosen, release):
    code, said, given = chosen(DEBIAN, release)
    assert (code, given) == (1, None)
    assert f"has no entry for kernel {release}" in said


def test_a_menu_that_does_not_boot_the_saved_entry_is_refused(chosen):
    code, said, given = chosen(DEBIAN.replace(SAVED, 'set default="0"\n'), NEW)
    assert (code, given) == (1, None)
    assert "set GRUB_DEFAULT=saved in /etc/default/grub and run update-grub" in said


@pytest.mark.parametrize("words", [(), ("",), (NEW, OLD)])
def test_it_takes_one_kernel(chosen, words):
    code, said, given = chosen(DEBIAN, *words)
    assert (code, given) == (2, None)
    assert "usage:" in said
