#!/bin/sh
# Trains on two machines, each with a worker. Run it on a machine of the cluster, in a folder that all machines see.
# Further options go to `toolkit launch slurm`, such as --gpus h100:4 (of each machine), and those after -- to sbatch:
# slurm.sh --gpus h100:4 -- --partition gpu --mem 64G. The 8 shards allow 1, 2 or 4 GPUs of each machine. With --dry-run it prints the script.
set -eu
exec toolkit launch slurm digits --shards 8 --nodes 2 --cpus 8 "$@"
