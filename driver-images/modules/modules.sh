# Sourced by load, probe and unload: the modules of an image in load order. `load-order` has lines "in-tree NAME" and
# "module NAME SRCVERSION FILE" with names as in /proc/modules.
: "${SYS:=/sys}" "${PROC:=/proc}"

ours() { while read -r kind line || [ -n "$kind" ]; do [ "$kind" != module ] || echo "$line"; done < "$order"; }
loaded() { [ -d "$SYS/module/$1" ] && [ -e "$SYS/module/$1/refcnt" ]; }
order=${DRIVER:-/driver}/load-order

# Exit if a module with a name of this image is loaded that was built from another source.
check_no_other_build() {
  ours | while read -r name srcversion _; do
    if loaded "$name" && [ "$(cat "$SYS/module/$name/srcversion" 2>/dev/null)" != "$srcversion" ]; then
      found=$(cat "$SYS/module/$name/version" 2>/dev/null || echo "of unknown version")
      fail $DRIVER_MISMATCH "module $name $found is loaded and is not this image's: a node upgrade unloads first"
    fi
  done
}

all_loaded() { ours | while read -r name _; do loaded "$name" || exit 1; done; }

# HOST: load in-tree modules by the node's modprobe, which supports their compression and options, then the image's files.
load_all() {
  for name in $(sed -n 's/^in-tree //p' "$order"); do
    PATH="$PATH:/usr/sbin:/usr/bin:/sbin:/bin" chroot "$1" modprobe "$name" ||
      fail $MISSING "the node cannot load $name of its own kernel"
  done
  taken=
  ours > "$state/.loading"
  while read -r name _ file; do
    loaded "$name" && continue
    if ! said=$(insmod "$DRIVER/$file" 2>&1); then
      for one in $taken; do rmmod "$one" || true; done
      fail $DEVICE_FAILED "$name is not loaded: $said; $(last_words)"
    fi
    taken="$name $taken"
  done < "$state/.loading"
  rm -f "$state/.loading"
}

# The last lines of the kernel's log, the only place with the reason of a rejection.
last_words() { dmesg 2>/dev/null | tail -n 3 | tr '\n' ' ' || true; }
