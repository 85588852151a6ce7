"""The NodeUpgrade: what its next step depends on, and what is performed for it; evictions, Jobs, claims, forced steps.

Here: reading one node, performing what core.node_upgrade decides, recording it.
Not here: gangs.
"""
