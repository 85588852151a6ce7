# enter.sh ROOT LAYERS BUILD TOKENS MEMORY COMMAND...: runs COMMAND in a separate root. The caller provides new namespaces
# for mounts, processes and the network, so that no mount remains and no network is reachable.
# ROOT: an empty folder. LAYERS: trees in the syntax of overlayfs, mounted read-only. BUILD: /build inside, the only
# folder of the build user. TOKENS: a pipe with one byte per free core, for make. MEMORY: bytes per process.
set -eu
root=$1 layers=$2 build=$3 tokens=$4 memory=$5
shift 5
mount --make-rprivate /
mount -t overlay overlay -o "ro,lowerdir=$layers" "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount --bind "$build" "$root/build"
mount -t tmpfs -o nosuid,nodev tmpfs "$root/tmp"
mount -t tmpfs -o nosuid,mode=755 tmpfs "$root/dev"
for device in full null random urandom zero; do
  : > "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
: > "$root/tmp/tokens"
mount --bind "$tokens" "$root/tmp/tokens"
# Not exec: the first process of the namespace must keep its user, or it would not be killed with its parent.
setpriv --no-new-privs prlimit --as="$memory" --core=0 chroot --userspec=65534:65534 "$root" \
  /usr/bin/env -i PATH=/usr/bin HOME=/tmp LC_ALL=C.UTF-8 SOURCE_DATE_EPOCH=0 \
  KBUILD_BUILD_TIMESTAMP=@0 KBUILD_BUILD_USER=upgrader KBUILD_BUILD_HOST=upgrader KBUILD_BUILD_VERSION=1 \
  MAKEFLAGS="-j --jobserver-auth=8,9" \
  /bin/sh -c 'cd /build && echo entered && exec "$@" 8<>/tmp/tokens 9<>/tmp/tokens 2>&1' sh "$@"
