"""The DaemonSets of operands, and the Service and ServiceMonitor of the exporter.

Here: their manifests, their order on a node, and their containers.
Not here: programs of vendors (vendors), and pods that run once (node_pods).
"""
