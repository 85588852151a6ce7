# Sourced by load and unload: one of them at a time per node. A dead holder's lock is taken over. Pids are the node's
# (hostPID).

started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

# FILE: acquire the lock, or exit with 14 after ten seconds (LOCK_TRIES tenths of a second).
lock() {
  lock_file=$1
  tries=0
  until (set -C; echo "$$ $(started $$)" > "$lock_file") 2>/dev/null; do
    holder=$(cat "$lock_file" 2>/dev/null || true)
    if [ -n "$holder" ] && [ "${holder#* }" != "$(started "${holder% *}")" ]; then
      # If two processes see a dead holder, only one of them can move its file.
      mv "$lock_file" "$lock_file.dead.$$" 2>/dev/null && rm -f "$lock_file.dead.$$"
      continue
    fi
    tries=$((tries + 1))
    [ $tries -le "${LOCK_TRIES:-100}" ] || { echo "lock $lock_file is held by process ${holder% *}" >&2; exit 14; }
    sleep 0.1
  done
  trap unlock EXIT
}

unlock() { rm -f "$lock_file"; trap - EXIT; }
