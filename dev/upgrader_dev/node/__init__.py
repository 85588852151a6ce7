"""Programs of the simulated vendor on nodes: device plugin, exporter, feature discovery, runtime hook.

Here: real protocols with simulated devices, beside upgrader.node in the image of the vendor's operands.
Not here: what the controller renders for them (vendor), and the simulated driver (driver-images/sim).
"""
