# Sourced by load and service: the folder on the node's disk for libraries, tools, firmware and services, and the name of
# this build in it.
place=/var/lib/gpu-upgrader/drivers/$vendor
build=$version-$(field "$DRIVER/manifest.json" buildKey | cut -c 1-16)
