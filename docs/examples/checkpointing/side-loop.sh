#!/bin/bash
# A side loop for a program that knows nothing of all this, but checkpoints when its rank 0 gets SIGUSR1 and then leaves
# a marker `step-N.done` beside its checkpoints (Slurm's usual way). Every rank is started under it:
#
#   mpirun ... side-loop.sh ./app arguments
#
# Local rank 0 of each pod answers for its pod, global rank 0 sends the signal. The pods' request files change at different
# moments, so the loops agree through the shared volume: whoever sees a request first tells all, the step that rank 0
# found is everybody's answer. Parking is SIGSTOP: it needs no help from the program.
#
# Loses the steps between the checkpoint and SIGSTOP, about one POLL: the program trains on until the marker was seen.
# A program that waits by itself after a checkpoint loses nothing. Needs bash, coreutils, and POD_UID.
set -u
requests=${REQUESTS:-/etc/gpu-upgrader} answers=${ANSWERS:-/run/checkpoint} checkpoints=${CHECKPOINTS:-/checkpoints}
poll=${POLL:-0.5}
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}
local_rank=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${SLURM_LOCALID:-0}}}
pids=${PIDS:-/tmp/side-loop} shared=$checkpoints/.side-loop # pids are of this container, the shared files are of the gang
mkdir -p "$pids" "$shared"

if [ "$local_rank" != 0 ]; then
  touch "$pids/$$"
  exec "$@" # keeps the pid
fi
: "${POD_UID:?set it from the downward API: fieldRef metadata.uid}"
"$@" &
app=$!
touch "$pids/$app"

# Below, results come in variables and never by $(...): bash 5.2 loses a SIGTERM that arrives while it reads one.

number() { # value: the file's number, 0 where there is none (an annotation that is not there shows as an empty file)
  value=
  [ ! -r "$1" ] || read -r value <"$1" || true # it has no line end
  [[ $value =~ ^[0-9]+$ ]] || value=0
}
clock() { # now: seconds on a clock that never jumps
  local rest
  read -r now rest </proc/uptime
  now=${now%.*}
}
each() { # a signal to all of this pod's ranks; one that has ended meanwhile needs none
  local file
  for file in "$pids"/*; do kill "-$1" "${file##*/}" 2>/dev/null || true; done
}
newest() { # marker, and its step: the latest checkpoint; empty where there is none
  local file number
  marker='' step=-1
  for file in "$checkpoints"/step-*.done; do
    number=${file##*step-} number=${number%.done}
    if [[ $number =~ ^[0-9]+$ ]] && ((10#$number > step)); then marker=$file step=$((10#$number)); fi
  done
}
highest() { # asked: the latest request that any pod has seen
  local file
  asked=0
  for file in "$shared"/asked-*; do
    if [ "${file##*asked-}" != '*' ] && ((${file##*asked-} > asked)); then asked=${file##*asked-}; fi
  done
}
answer() { # request step uri parked: under another name first, so that nobody reads half of it
  printf '{"requestId": %s, "podUid": "%s", "step": %s, "uri": "%s", "parked": %s}\n' \
    "$1" "$POD_UID" "$2" "$3" "$4" >"$answers/.ack.new" && mv "$answers/.ack.new" "$answers/ack.json"
}

parked=no
stopped() { # SIGTERM: a parked program must not take another step, any other may save what it has
  trap '' TERM
  if [ "$parked" = yes ]; then each KILL; else each TERM; fi
  wait "$app"
  exit 143 # never 0, which would count as finished
}
trap stopped TERM
ended() { # the exit code of the program is that of the script
  kill -0 "$app" 2>/dev/null && return
  wait "$app"
  exit $?
}

progress() { # the latest step of which we know: more than the acknowledged one, as soon as a later checkpoint is there
  newest
  if [ -n "$marker" ]; then
    printf '{"step": %s, "podUid": "%s"}\n' "$step" "$POD_UID" >"$answers/.progress.new"
    mv "$answers/.progress.new" "$answers/progress.json"
  fi
}

listens() { # whether it catches SIGUSR1 yet: until then the signal would end it
  local name mask
  while read -r name mask; do
    [ "$name" != SigCgt: ] || return $((16#$mask & 0x200 ? 0 : 1))
  done <"/proc/$app/status"
  return 1
}

find_answer() { # rank 0: one signal, then the first marker that was not there before; the others wait for what it found
  local request=$1 before
  if [ "$rank" = 0 ] && [ ! -e "$shared/answer-$request" ]; then
    until listens; do ended; sleep "$poll"; done
    newest
    before=$marker
    kill -USR1 "$app"
    until newest && [ "$marker" != "$before" ]; do ended; sleep "$poll"; done
    echo "$step $marker" >"$shared/.answer.new" && mv "$shared/.answer.new" "$shared/answer-$request"
  fi
  until [ -e "$shared/answer-$request" ]; do ended; sleep "$poll"; done
}

park() { # until the request is withdrawn, replaced, or its time is over; seen: this pod's own file has shown it
  local request=$1 step=$2 uri=$3 since seen=$4
  parked=yes # before it is: a program that stands still would not end by SIGTERM
  each STOP
  clock
  since=$now
  number "$requests/checkpoint-request"
  [ "$value" != "$request" ] || seen=yes # before the answer: whoever reads that may withdraw the request at once
  answer "$request" "$step" "$uri" true
  echo "park $step"
  while :; do
    number "$requests/checkpoint-request"
    if [ "$value" = "$request" ]; then seen=yes; elif [ "$value" -gt "$request" ] || [ "$seen" = yes ]; then break; fi
    number "$requests/park-seconds"
    [ "$seen" = yes ] || value=600 # another pod was asked, and this one's own file has not followed yet
    clock
    ((now - since <= value)) || break # both are cut to whole seconds: a second too long, never one too short
    sleep "$poll"
  done
  answer "$request" "$step" "$uri" false # before the next step: nobody stops a member that trains on
  each CONT
  parked=no
  echo "go on $step"
}

highest
earlier=$asked last=0 # what others saw before this run began counts only where this pod's own file says so too
while ended; do
  progress
  number "$requests/checkpoint-request"
  shown=$value # it may be withdrawn while the checkpoint is written, and then nobody parks for long
  [ "$value" -le "$last" ] || touch "$shared/asked-$value"
  highest
  [ "$asked" -gt "$earlier" ] || asked=$value
  if [ "$asked" -gt "$last" ]; then
    last=$asked
    find_answer "$last"
    read -r step uri <"$shared/answer-$last"
    seen=no
    [ "$shown" != "$last" ] || seen=yes
    park "$last" "$step" "$uri" "$seen"
  fi
  sleep "$poll"
done
