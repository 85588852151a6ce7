"""The driver of the node: loaded or not, its devices, its proof, its removal.

Here: what is true of any vendor, and NVIDIA.
Not here: operands of the simulated vendor (sim).
"""
