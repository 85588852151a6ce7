"""What every command needs: the connection to a cluster, exit codes, output as tables or JSON.

Here: nothing that knows a kind.
Not here: commands.
"""
