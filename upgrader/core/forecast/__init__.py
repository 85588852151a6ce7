"""The forecast of a plan: batches of upgrade groups, their order, their times, and their cost.

Here: one pure function, forecast.forecast_rollout, and its parts.
Not here: why a group is blocked (constraints).
"""
