"""Values that all rules use: nodes, gangs and images of a fleet, operands, vendors, phases, strategy.

Here: facts on a cluster, as values, and small total functions of them.
Not here: decisions; values that only one kind of object needs.
"""
