"""A machine that is a script."""

import os

import pytest


@pytest.fixture
def qemu(tmp_path, monkeypatch):
    """What `qemu-system-x86_64` is to do, in shell; `$console` is the file of its serial port.

    Gives the file with a line of each start: `said`, its words unless given.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def does(script, said="$@"):
        find = f'for word; do case $word in file:*) console=${{word#file:}};; esac; done; echo "{said}" >> "$0.log"'
        (programs / "qemu-system-x86_64").write_text(f"#!/bin/sh\n{find}\n{script}\n")
        (programs / "qemu-system-x86_64").chmod(0o755)
        return programs / "qemu-system-x86_64.log"

    return does
