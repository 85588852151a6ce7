"""Base of all commands: the connection to a cluster, exit codes, output as tables or JSON.

Here: code that does not depend on a kind.
Not here: commands.
"""
