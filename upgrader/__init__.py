"""Upgrades fleets of GPU nodes without losing work: checkpoint first, then one upgrade."""

__version__ = "0.1.0"
"""Said here and nowhere else: our images hold the package without its metadata."""
