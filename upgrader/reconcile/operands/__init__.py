"""The operands of a stack: DaemonSets, discovery labels, monitoring objects, pods that are missing.

Here: what is applied for a stack and read of it.
Not here: when a node changes (node_upgrade).
"""
