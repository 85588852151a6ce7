"""Operands of the simulated vendor: device plugin, exporter, feature discovery, runtime hook.

Here: real protocols with simulated devices.
Not here: operands of real vendors, which have their own images.
"""
