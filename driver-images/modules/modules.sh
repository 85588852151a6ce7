# Sourced by load, probe and unload: the modules of an image in load order. `load-order` has lines "in-tree NAME NEED" and
# "module NAME SRCVERSION FILE NEED" with names as in /proc/modules; NEED is required or optional. The driver works without
# an optional module: if the kernel rejects it, the rejection is recorded, and it is no error.
: "${SYS:=/sys}" "${PROC:=/proc}"

order=${DRIVER:-/driver}/load-order

# Lines "NAME SRCVERSION FILE NEED".
image_modules() { while read -r kind line || [ -n "$kind" ]; do [ "$kind" != module ] || echo "$line"; done < "$order"; }
loaded() { [ -d "$SYS/module/$1" ] && [ -e "$SYS/module/$1/refcnt" ]; }

# Exit if a module with a name of this image is loaded that was built from another source.
check_no_other_build() {
  image_modules | while read -r name srcversion _; do
    if loaded "$name" && [ "$(cat "$SYS/module/$name/srcversion" 2>/dev/null)" != "$srcversion" ]; then
      found=$(cat "$SYS/module/$name/version" 2>/dev/null || echo "of unknown version")
      fail $DRIVER_MISMATCH "module $name $found of another build is loaded; a node upgrade must unload it first"
    fi
  done
}

# Names of required modules that are not loaded.
missing_modules() {
  image_modules | while read -r name _ _ need; do [ "$need" = optional ] || loaded "$name" || echo "$name"; done
}

# NAME: the parameters of a module, which a node upgrade has written to $parameters as lines "NAME PARAMETER=VALUE".
module_parameters() { [ ! -f "$parameters" ] || sed -n "s/^$1 //p" "$parameters"; }

# HOST: load in-tree modules by the node's modprobe, which supports their compression and options, then the image's files.
# `$state/.rejected` has a line "NAME REASON" for each optional module that is not loaded.
load_all() {
  : > "$state/.rejected"
  while read -r kind name need _; do
    [ "$kind" = in-tree ] || continue
    PATH="$PATH:/usr/sbin:/usr/bin:/sbin:/bin" chroot "$1" modprobe "$name" < /dev/null && continue
    [ "$need" = optional ] || fail $MISSING "modprobe of in-tree module $name failed on the node"
    reject "$name" "modprobe failed on the node"
  done < "$order"
  taken=
  image_modules > "$state/.loading"
  while read -r name _ file need; do
    loaded "$name" && continue
    # shellcheck disable=SC2046 - a line for each parameter; no value has spaces
    if output=$(insmod "$DRIVER/$file" $(module_parameters "$name") 2>&1 < /dev/null); then
      taken="$name $taken"
    elif [ "$need" = optional ]; then
      reject "$name" "${output##*: }; $(last_words)"
    else
      for module in $taken; do rmmod "$module" || true; done
      fail $DEVICE_FAILED "module $name cannot be loaded: $output; $(last_words)"
    fi
  done < "$state/.loading"
  rm -f "$state/.loading"
}

# NAME REASON: records that an optional module is not loaded. A reason becomes a string of JSON, and is shortened.
reject() {
  reason=$(printf %s "$2" | tr '\n"\\' "  /" | tr -cd ' -~' | cut -c 1-300)
  say "without the optional module $1: $reason"
  echo "$1 $reason" >> "$state/.rejected"
}

# The members of a JSON object with the reason of each optional module that is not loaded.
rejected_modules() {
  [ ! -f "$state/.rejected" ] || sed -n 's/^\([a-z0-9_]*\) \(.*\)$/"\1": "\2"/p' "$state/.rejected" | tr '\n' ',' | sed 's/,$//; s/,"/, "/g'
}

# The last lines of the kernel's log, the only place with the reason of a rejection.
last_words() { dmesg 2>/dev/null | tail -n 3 | tr '\n' ' ' || true; }
