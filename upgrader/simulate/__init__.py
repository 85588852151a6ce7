"""A rollout in virtual time: the planner and the state machines of the product, driven through generated fleets."""
