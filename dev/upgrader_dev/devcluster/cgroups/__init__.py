"""The cgroups of boxes, in both versions: create, enter, freeze, kill, remove."""

from upgrader_dev.devcluster.cgroups.host import (
    ROOT,
    Cgroups,
    box_cgroups,
    delegate_controllers,
    mounted_version,
    require_support,
)

__all__ = ["ROOT", "Cgroups", "box_cgroups", "delegate_controllers", "mounted_version", "require_support"]
