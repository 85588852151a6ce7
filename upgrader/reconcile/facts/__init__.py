"""Values for decisions of core, derived from objects of the API server: nodes, pods, owners, claims, gangs.

Here: total functions and caches of values of one object; invalid input becomes the value that permits less.
Not here: requests to the API server, except readers that take the port.
"""
