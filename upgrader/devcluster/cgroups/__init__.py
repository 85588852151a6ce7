"""The cgroups of boxes, on either version: made, entered, frozen, ended, removed."""

from upgrader.devcluster.cgroups.host import ROOT, Cgroups, delegate, of_box, require, version

__all__ = ["ROOT", "Cgroups", "delegate", "of_box", "require", "version"]
