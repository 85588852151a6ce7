"""The cgroups of boxes, on either version: made, entered, frozen, ended, removed."""

from upgrader_dev.devcluster.cgroups.host import (
    ROOT,
    Cgroups,
    delegate_controllers,
    mounted_version,
    of_box,
    require_support,
)

__all__ = ["ROOT", "Cgroups", "delegate_controllers", "mounted_version", "of_box", "require_support"]
