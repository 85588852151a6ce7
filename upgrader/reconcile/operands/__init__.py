"""Reconciliation of a stack's operands: DaemonSets, feature labels, monitoring objects, missing pods.

Here: objects that are applied for a stack, and their state.
Not here: changes of nodes (node_upgrade).
"""
