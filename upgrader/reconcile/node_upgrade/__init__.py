"""Reconciliation of a NodeUpgrade: inputs and acts of its step, evictions, Jobs, claims, forced steps.

Here: reading one node, performing and recording the decisions of core.node_upgrade.
Not here: gangs.
"""
