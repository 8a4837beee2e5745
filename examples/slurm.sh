#!/bin/sh
# Trains on two machines, each with a worker. Run it on a machine of the cluster, in a folder that all machines see.
# Further options go to `toolkit launch slurm`: --gpus N (of each machine), --partition NAME, --interpreter FILE.
# With --dry-run it prints the script.
set -eu
exec toolkit launch slurm digits --shards 4 --nodes 2 --cpus 8 --mem 16G --time 2:00:00 "$@"
