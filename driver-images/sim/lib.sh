# Sourced by load, probe and prepare: what they know of the image and of the node. POSIX sh, runs in busybox.
# The three places can be set otherwise, for tests.
: "${DRIVER:=/driver}" "${RUN:=/run/gpu-upgrader}" "${PROC:=/proc}"
set -eu

# Exit codes, the same numbers as in upgrader/node/outcome.py.
KERNEL_MISMATCH=10 DRIVER_MISMATCH=11 MISSING=14

say() { echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) sim driver (simulated, no kernel module): $*"; }
fail() { code=$1; shift; say "$*" >&2; exit "$code"; }

# FILE NAME: a string or a number of a flat JSON object.
field() { sed -n -e "s/.*\"$2\": *\"\\([^\"]*\\)\".*/\\1/p" -e "s/.*\"$2\": *\\([0-9][0-9]*\\).*/\\1/p" "$1" | head -n 1; }

# The kubelet's pid: its root directory is the node's, and its flags say which boot id the API server is shown.
kubelet() {
  for cmdline in $(grep -lzE -- '^--kubeconfig(=|$)' "$PROC"/[0-9]*/cmdline 2>/dev/null); do
    case $(tr '\0' '\n' < "$cmdline" | head -n 1) in
      kubelet | */kubelet) cmdline=${cmdline%/cmdline}; echo "${cmdline##*/}"; return ;;
    esac
  done
  fail $MISSING "no kubelet seen among the processes: the pod needs hostPID"
}

# PID: the boot id as that kubelet reports it (--boot-id-file names the first file that exists, or the kernel's own).
boot_id() {
  files=$(tr '\0' '\n' < "$PROC/$1/cmdline" | sed -n -e 's/^--boot-id-file=//p' -e '/^--boot-id-file$/{n;p;}' | tail -n 1)
  for file in $(echo "${files:-/proc/sys/kernel/random/boot_id}" | tr ',' ' '); do
    if [ -f "$PROC/$1/root$file" ]; then tr -d ' \n' < "$PROC/$1/root$file"; return; fi
  done
  fail $MISSING "the kubelet's boot id file is not there: ${files:-/proc/sys/kernel/random/boot_id}"
}

# PID: the node's kernel.
kernel() { cat "$PROC/$1/root/proc/sys/kernel/osrelease"; }

vendor=$(field "$DRIVER/manifest.json" vendor)
version=$(field "$DRIVER/manifest.json" version)
state=$RUN/$vendor
