"""Virtual nodes: QEMU machines with their own kernel, which join the cluster as any node does."""
