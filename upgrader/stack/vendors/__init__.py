"""The operands of vendors as data: the program of each container, its settings, and its probe. Pure.

Rules that do not render manifests are in core/model/vendors.py. To add a vendor, add a module here and an entry
below.
"""

from collections.abc import Mapping

from upgrader.core.model.vendors import NVIDIA, SIM
from upgrader.stack.vendors import nvidia, sim
from upgrader.stack.vendors.programs import Program, Vendor

__all__ = ["VENDORS", "Program", "Vendor"]

VENDORS: Mapping[str, Vendor] = {NVIDIA: nvidia.VENDOR, SIM: sim.VENDOR}
