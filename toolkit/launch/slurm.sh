#!/usr/bin/env bash
@directives@
# Written by `toolkit launch slurm`. Slurm's variables tell each task its place among the workers of a run or the members
# of a sweep. Before the time limit, Slurm sends USR1 to this script: the job saves, and goes back to the queue to go on.
export TOOLKIT_PORT=@port@
restarts=@restarts@ again=yes code=1 limit=''
trap 'again=yes limit=yes; kill -TERM "$step"' USR1
trap 'again=yes; kill -TERM "$step"' TERM
srun @options@ \
  @command@ &
step=$!
# A signal interrupts `wait`.
while [ -n "$again" ]; do
  again=''
  wait "$step"
  found=$?
  [ "$found" -eq 127 ] || code=$found
done
if [ -n "$limit" ] && [ "$code" -ne 0 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "$restarts" ]; then
  scontrol requeue "@job@"
fi
exit "$code"
