"""A fake API server in memory: objects as a real one keeps them, and reconcile's Cluster port on top of them.

tests/contract holds it against a real API server.
"""
