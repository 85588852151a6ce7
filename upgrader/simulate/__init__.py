"""A rollout over virtual time: the planner and the phases of the product, driven through fleets that are made up."""
