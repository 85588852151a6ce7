"""systemd as the first process of the node. Programs of the node run in its namespaces, as its own services do."""

from collections.abc import Sequence

from upgrader.node.host.host import Host

# The PATH of the node image does not contain /usr/sbin, where grub-set-default is.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C"}
"""Environment of programs of the node, in addition to that of the container."""

ENTER = ("nsenter", "-t", "1", "-m", "-u", "-i", "-n", "-p", "--")
"""Begin of a command that runs in the namespaces of the first process."""


def runs_systemd(host: Host) -> bool:
    """Whether systemd is the first process of the node; the same test as sd_booted(3)."""
    return (host.root / "run/systemd/system").is_dir()


def node_command(host: Host, words: Sequence[str]) -> list[str]:
    """The command that runs a program of the node.

    Under systemd it runs in the namespaces of the first process: a systemctl that finds itself in a chroot ignores the
    request and ends with exit code 0. Elsewhere a chroot is enough.
    """
    return [*ENTER, *words] if runs_systemd(host) else ["chroot", str(host.root), *words]
