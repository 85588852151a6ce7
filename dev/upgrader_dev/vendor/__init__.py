"""The simulated vendor, which upgrader loads by the entry point `sim` of the group `gpu_upgrader.vendors`.

Here: its operands as data, and the labels of its nodes.
Not here: the programs that run on nodes (upgrader_dev.node, driver-images/sim).
"""
