"""Objects of the API server as the values that core decides on: nodes, pods, owners, claims, gangs.

Here: total functions and caches of what follows from one object; odd input becomes the value that allows less.
Not here: requests to the API server, but for readers that take the port.
"""
