# Sourced by load, probe and unload: NVIDIA's device files. Numbers are from the kernel module's headers (nvidia: major
# 195, nvidiactl 255, modeset 254); other majors are in /proc/devices.
: "${PROC:=/proc}" "${DEV:=}"

major_of() { sed -n "s/^ *\\([0-9][0-9]*\\) $1\$/\\1/p" "$PROC/devices" | head -n 1; }
count_devices() {
  set -- "$PROC"/driver/nvidia/gpus/*
  if [ -e "$1" ]; then echo $#; else echo 0; fi
}

# HOST NAME MAJOR MINOR: a device file, and its link in /dev/char. runc finds a device by that link if systemd manages the
# cgroups; without it a container loses the device at the next `systemctl daemon-reload`. Majors other than 195 are
# dynamic, so that a file of an earlier driver can have another number.
node() {
  if [ "$(stat -c %t:%T "$1/dev/$2" 2>/dev/null)" != "$(printf %x:%x "$3" "$4")" ]; then
    rm -f "$1/dev/$2"
    mknod "$1/dev/$2" c "$3" "$4"
    chmod 666 "$1/dev/$2"
  fi
  mkdir -p "$1/dev/char"
  ln -sfn "../$2" "$1/dev/char/$3:$4"
}

# HOST
make_devices() {
  main=$(major_of nvidia-frontend)
  main=${main:-$(major_of nvidia)}
  [ -n "$main" ] || fail $DEVICE_FAILED "the nvidia module is loaded, but registered no character device: $(last_words)"
  node "$1" nvidiactl "$main" 255
  number=0
  while [ $number -lt "$(count_devices)" ]; do
    node "$1" "nvidia$number" "$main" $number
    number=$((number + 1))
  done
  if loaded nvidia_modeset; then node "$1" nvidia-modeset "$main" 254; fi
  uvm=$(major_of nvidia-uvm)
  if [ -n "$uvm" ]; then
    node "$1" nvidia-uvm "$uvm" 0
    node "$1" nvidia-uvm-tools "$uvm" 1
  fi
  make_switches "$1"
}

# HOST: the control device of NVSwitches, and one for each. The minors of the switches are their order.
make_switches() {
  major=$(major_of nvidia-nvswitch)
  [ -n "$major" ] || return 0
  number=0
  for switch in "$PROC"/driver/nvidia-nvswitch/devices/*; do
    [ -e "$switch" ] || continue
    node "$1" "nvidia-nvswitch$number" "$major" $number
    number=$((number + 1))
  done
  [ $number -eq 0 ] || node "$1" nvidia-nvswitchctl "$major" 255
}

# Another driver may have other majors. The upgrade has the node's file system at /host; without it there is nothing to do.
remove_devices() {
  dev=${HOST_ROOT:-/host}/dev
  for link in "$dev"/char/*; do
    case $(readlink "$link") in ../nvidia*) rm -f "$link" ;; esac
  done
  for file in "$dev"/nvidia*; do
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
