"""The control plane: etcd, API server, controllers, scheduler, registry, kwok, as one plan of programs.

Here: their settings and order.
Not here: nodes.
"""
