"""The driver of the node: its record, its devices, its validation, its removal.

Here: checks for all vendors and for NVIDIA.
Not here: operands, which have images of their own.
"""
