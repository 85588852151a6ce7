"""A fake API server in memory: an object store, and on top of it the Cluster port of reconcile.

tests/contract compares it with a real API server.
"""
