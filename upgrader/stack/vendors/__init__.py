"""A vendor's operands as data: what each container runs, with which settings, and what shows that it works. Pure.

Rules that do not render anything go by core/model/vendors.py. Another vendor is another module here and one entry
below.
"""

from collections.abc import Mapping

from upgrader.core.model.vendors import NVIDIA, SIM
from upgrader.stack.vendors import nvidia, sim
from upgrader.stack.vendors.programs import Program, Vendor

__all__ = ["VENDORS", "Program", "Vendor"]

VENDORS: Mapping[str, Vendor] = {NVIDIA: nvidia.VENDOR, SIM: sim.VENDOR}
