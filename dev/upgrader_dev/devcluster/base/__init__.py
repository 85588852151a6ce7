"""The parts of a cluster: spec, record on disk, addresses, versions, programs, credentials, links.

Here: values, and code that all kinds of nodes share.
Not here: code that starts anything.
"""
