"""The NodeUpgrade: its state machine, what has to leave a node before, and what a user may force.

Here: decisions on one node and its upgrade group, from values.
Not here: what the Jobs on the node do (upgrader/node).
"""
