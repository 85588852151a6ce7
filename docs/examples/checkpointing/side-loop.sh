#!/bin/bash
# A side loop for a program that knows nothing of all this, but checkpoints when its rank 0 gets SIGUSR1 and then leaves
# a marker `step-N.done` beside its checkpoints (Slurm's usual way). Every rank is started under it:
#
#   mpirun ... side-loop.sh ./app arguments
#
# Local rank 0 of each pod talks for its pod, global rank 0 sends the signal. The pods' request files change at different
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
pids=${PIDS:-/tmp/side-loop} talk=$checkpoints/.conversation # pids are of this container, the talk is of the gang
mkdir -p "$pids" "$talk"

if [ "$local_rank" != 0 ]; then
  touch "$pids/$$"
  exec "$@" # keeps the pid
fi
: "${POD_UID:?set it from the downward API: fieldRef metadata.uid}"
"$@" &
app=$!
touch "$pids/$app"

number() { # the file's number, 0 where there is none: an annotation that is not there shows as an empty file
  local text=
  [ ! -r "$1" ] || text=$(<"$1")
  [[ $text =~ ^[0-9]+$ ]] && echo "$text" || echo 0
}
seconds() { # on a clock that never jumps
  local up rest
  read -r up rest </proc/uptime
  echo "${up%.*}"
}
each() { # a signal to all of this pod's ranks; one that has ended meanwhile needs none
  local file
  for file in "$pids"/*; do kill "-$1" "${file##*/}" 2>/dev/null || true; done
}
newest() { find "$checkpoints" -maxdepth 1 -name 'step-*.done' | sort -V | tail -n 1; }
answer() { # request step uri parked: under another name first, so that nobody reads half of it
  printf '{"requestId": %s, "podUid": "%s", "step": %s, "uri": "%s", "parked": %s}\n' \
    "$1" "$POD_UID" "$2" "$3" "$4" >"$answers/.ack.new" && mv "$answers/.ack.new" "$answers/ack.json"
}
highest() { find "$talk" -name 'asked-*' | sed 's/.*asked-//' | sort -n | tail -n 1; }

parked=no
stopped() { # SIGTERM: a parked program must not take another step, any other may save what it has
  trap '' TERM
  if [ "$parked" = yes ]; then each KILL; else each TERM; fi
  wait "$app"
  exit 143 # never 0, which would count as finished
}
trap stopped TERM
ended() { # the program's own exit code is ours
  kill -0 "$app" 2>/dev/null && return
  wait "$app"
  exit $?
}

progress() { # the latest step of which we know: more than the acknowledged one, as soon as a later checkpoint is there
  local marker step
  marker=$(newest) step=${marker##*step-}
  if [ -n "$marker" ]; then
    printf '{"step": %s, "podUid": "%s"}\n' "$((10#${step%.done}))" "$POD_UID" >"$answers/.progress.new"
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
  local request=$1 before marker step
  if [ "$rank" = 0 ] && [ ! -e "$talk/answer-$request" ]; then
    until listens; do ended; sleep "$poll"; done
    before=$(newest)
    kill -USR1 "$app"
    until marker=$(newest) && [ "$marker" != "$before" ]; do ended; sleep "$poll"; done
    step=${marker##*step-}
    echo "$((10#${step%.done})) $marker" >"$talk/.answer.new" && mv "$talk/.answer.new" "$talk/answer-$request"
  fi
  until [ -e "$talk/answer-$request" ]; do ended; sleep "$poll"; done
}

park() { # until the request is withdrawn, replaced, or its time is over
  local request=$1 step=$2 uri=$3 since seen=no limit now
  each STOP
  parked=yes since=$(seconds)
  answer "$request" "$step" "$uri" true
  echo "park $step"
  while :; do
    now=$(number "$requests/checkpoint-request") limit=$(number "$requests/park-seconds")
    if [ "$now" = "$request" ]; then seen=yes; elif [ "$now" -gt "$request" ] || [ "$seen" = yes ]; then break; fi
    [ "$seen" = yes ] || limit=600 # another pod was asked, and this one's own file has not followed yet
    [ $(($(seconds) - since)) -lt "$limit" ] || break
    sleep "$poll"
  done
  answer "$request" "$step" "$uri" false # before the next step: nobody stops a member that trains on
  parked=no
  each CONT
  echo "go on $step"
}

last=$(highest)
last=${last:-0} # what was asked before this run is not asked of it
while ended; do
  progress
  request=$(number "$requests/checkpoint-request")
  [ "$request" -le "$last" ] || touch "$talk/asked-$request"
  request=$(highest)
  if [ "${request:-0}" -gt "$last" ]; then
    find_answer "$request"
    read -r step uri <"$talk/answer-$request"
    park "$request" "$step" "$uri"
    last=$request
  fi
  sleep "$poll"
done
