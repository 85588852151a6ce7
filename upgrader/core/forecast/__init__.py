"""The forecast of a plan: which upgrade groups go together, in which order, when, and what it costs.

Here: one pure function, forecast.forecast, and its parts.
Not here: why something cannot go (constraints).
"""
