"""A simulated cluster for tests: an API server in memory, and the programs that act on its objects.

Here: packages apiserver (objects, watches, patches) and cluster (kubelets, controllers, jobs), on virtual time.
Not here: faults and laws (chaos), and the simulation of `upgrader simulate` (upgrader.simulate).
"""
