"""What a cluster is: its spec, its record on disk, addresses, versions, programs, credentials, links.

Here: values, and what all kinds of nodes share.
Not here: starting anything.
"""
