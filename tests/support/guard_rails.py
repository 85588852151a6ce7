"""A stack with every guard rail, as a person writes it."""

STACK = """\
apiVersion: gpu-upgrader.io/v1alpha1
kind: GpuStack
metadata: {name: pool-a}
spec:
  nodeSelector: {pool: a, zone: z1}
  driver: {vendor: sim, version: "1.0"}
  devicePlugin: {image: "registry.example/plugin:1"}
  guardRails:
    taint: true
    priorityClasses:
      - {name: gpu-production, value: 1000, preemptionPolicy: PreemptLowerPriority, description: stops spare work}
      - {name: gpu-spare, value: 10}
    quotas:
      - {namespace: team-a, gpus: 8}
      - {namespace: team-a, gpus: 2, priorityClasses: [gpu-production]}
    tuned:
      sysctl: {vm.swappiness: "0"}
      bootloader: {cmdline: "skew_tick=1"}
"""
