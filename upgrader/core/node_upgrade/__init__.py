"""The NodeUpgrade: its state machine, the pods that must leave a node first, and the steps that a user may force.

Here: decisions on one node and its upgrade group, from values.
Not here: what the Jobs on the node do (upgrader/node).
"""
