"""Values that every rule works on: nodes, gangs and images of a fleet, operands, vendors, phases, strategy.

Here: what is known of a cluster, as values, and small total functions of them.
Not here: decisions; anything that one kind of object alone needs.
"""
