# Sourced by load, probe and unload: NVIDIA's device files. Numbers are from the kernel module's headers (nvidia: major
# 195, nvidiactl 255, modeset 254); other majors are in /proc/devices.
: "${PROC:=/proc}" "${DEV:=}"

major_of() { sed -n "s/^ *\\([0-9][0-9]*\\) $1\$/\\1/p" "$PROC/devices" | head -n 1; }
count_devices() {
  set -- "$PROC"/driver/nvidia/gpus/*
  if [ -e "$1" ]; then echo $#; else echo 0; fi
}

node() { [ -e "$1" ] || { mknod "$1" c "$2" "$3" && chmod 666 "$1"; }; }

# HOST
make_devices() {
  main=$(major_of nvidia-frontend)
  main=${main:-$(major_of nvidia)}
  [ -n "$main" ] || fail $DEVICE_FAILED "the nvidia module is loaded and has no devices: $(last_words)"
  node "$1/dev/nvidiactl" "$main" 255
  number=0
  while [ $number -lt "$(count_devices)" ]; do
    node "$1/dev/nvidia$number" "$main" $number
    number=$((number + 1))
  done
  if loaded nvidia_modeset; then node "$1/dev/nvidia-modeset" "$main" 254; fi
  uvm=$(major_of nvidia-uvm)
  if [ -n "$uvm" ]; then
    node "$1/dev/nvidia-uvm" "$uvm" 0
    node "$1/dev/nvidia-uvm-tools" "$uvm" 1
  fi
}

# Another driver may have other majors. The upgrade has the node's file system at /host; without it there is nothing to do.
remove_devices() {
  for file in "${HOST_ROOT:-/host}"/dev/nvidia*; do
    if [ -c "$file" ]; then rm -f "$file"; fi
  done
}

# Pids of processes that have a device open, or mapped.
holders() {
  for name in nvidia-frontend nvidia nvidia-uvm nvidia-nvswitch nvidia-caps; do
    major=$(major_of "$name")
    [ -z "$major" ] || printf '^%x \n' "$major"
  done > "$state/.majors"
  if [ -s "$state/.majors" ]; then
    { find "$PROC"/[0-9]*/fd -type l -exec stat -L -c '%t %n' {} + 2>/dev/null || true; } |
      grep -f "$state/.majors" | sed "s#.* $PROC/\\([0-9]*\\)/fd/.*#\\1#" || true
  fi
  rm -f "$state/.majors"
  { grep -l ' /dev/nvidia' "$PROC"/[0-9]*/maps 2>/dev/null || true; } | sed "s#^$PROC/\\([0-9]*\\)/maps\$#\\1#"
}
