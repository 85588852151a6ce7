# Sourced by load, probe and prepare: facts about the image and the node. POSIX sh, runs in busybox.
# Tests override the four paths.
: "${DRIVER:=/driver}" "${RUN:=/run/gpu-upgrader}" "${PROC:=/proc}" "${SYS:=/sys}"
set -eu

# Exit codes, the same numbers as in upgrader/node/host/task_result.py.
KERNEL_MISMATCH=10 DRIVER_MISMATCH=11 CHECKSUM_MISMATCH=12 MISSING=14 DEVICE_FAILED=18 BAD_ORDER=19

say() { echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $who: $*"; }
fail() { code=$1; shift; say "$*" >&2; exit "$code"; }

# FILE NAME: a string or a number of a JSON object, the first with that name; a line has at most one. Uses the shell only,
# since a probe reads six of them every few seconds.
field() {
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in *"\"$2\":"*) ;; *) continue ;; esac
    line=${line##*"\"$2\":"}
    line=${line#"${line%%[! ]*}"}
    case $line in
      \"*) line=${line#?}; printf '%s\n' "${line%%\"*}" ;;
      *) echo "${line%%[!0-9]*}" ;;
    esac
    return
  done < "$1"
}

# The kubelet's pid. Its root directory is the node's, and its flags name the file with the boot id that it reports.
kubelet() {
  for cmdline in $(grep -lzE -- '^--kubeconfig(=|$)' "$PROC"/[0-9]*/cmdline 2>/dev/null); do
    case $(tr '\0' '\n' < "$cmdline" | head -n 1) in
      kubelet | */kubelet) cmdline=${cmdline%/cmdline}; echo "${cmdline##*/}"; return ;;
    esac
  done
  fail $MISSING "no kubelet process found: the pod needs hostPID: true"
}

# PID: the boot id as that kubelet reports it (--boot-id-file names the first file that exists, or the kernel's own).
boot_id() {
  files=$(tr '\0' '\n' < "$PROC/$1/cmdline" | sed -n -e 's/^--boot-id-file=//p' -e '/^--boot-id-file$/{n;p;}' | tail -n 1)
  for file in $(echo "${files:-/proc/sys/kernel/random/boot_id}" | tr ',' ' '); do
    if [ -f "$PROC/$1/root$file" ]; then tr -d ' \n' < "$PROC/$1/root$file"; return; fi
  done
  fail $MISSING "the kubelet's boot id file does not exist: ${files:-/proc/sys/kernel/random/boot_id}"
}

# PID: the node's kernel.
kernel() { cat "$PROC/$1/root/proc/sys/kernel/osrelease"; }

vendor=$(field "$DRIVER/manifest.json" vendor)
version=$(field "$DRIVER/manifest.json" version)
wanted_kernel=$(field "$DRIVER/manifest.json" kernel)
state=$RUN/$vendor
who="$vendor driver"

# BOOT: the version that is recorded as loaded on this boot; empty if there is none.
recorded() {
  if [ -f "$state/loaded.json" ] && [ "$(field "$state/loaded.json" bootId)" = "$1" ]; then
    field "$state/loaded.json" version
  fi
}

# KERNEL: exit if the image is for another kernel.
check_kernel() {
  [ "$1" = "$wanted_kernel" ] || fail $KERNEL_MISMATCH "this image is for kernel $wanted_kernel, the node runs $1"
}

# Exit 1 unless this version is recorded as loaded on this boot. The record is read first: probes run continuously while
# a driver is being loaded, and finding the kubelet takes longer.
check_record() {
  [ -f "$state/loaded.json" ] || fail 1 "no driver is loaded"
  present=$(field "$state/loaded.json" version)
  [ "$present" = "$version" ] || fail 1 "$present is loaded, not $version"
  pid=$(kubelet)
  boot=$(boot_id "$pid")
  [ "$(field "$state/loaded.json" bootId)" = "$boot" ] || fail 1 "$version was loaded on another boot than $boot"
}

# DEST: copies the manifest there.
leave_manifest() {
  cat "$DRIVER/manifest.json" > "$1/.manifest.new"
  mv "$1/.manifest.new" "$1/manifest.json"
}

# Does not return: the loaded driver needs no process, but the pod does.
stay() {
  trap 'exit 143' TERM INT
  say "$1"
  while :; do sleep 3600 & wait $!; done
}
