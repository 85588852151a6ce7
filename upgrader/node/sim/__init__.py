"""Operands of the simulated vendor: device plugin, exporter, feature discovery, runtime hook.

Here: real protocols, simulated devices.
Not here: anything that a real vendor needs.
"""
