#!/bin/bash
#SBATCH --job-name=bmgd
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --time=01:00:00
#
# One bmgd daemon on each node of a Slurm job, for as long as a program of yours runs:
#
#   sbatch deploy/slurm.sh [PROGRAM [ARGUMENT ...]]
#
# The program runs on the job's first node once daemon 0 is ready, with the address of the daemons'
# sockets (the same path on every node) in OVERLAY_CONTROL; when it ends, the daemons leave. Without a
# program they run until the job ends. To be set before sbatch, if needed:
#
#   PORT     the daemons' port (7400; below 32768, where no outgoing connection can hold it)
#   BMGD     the command bmgd, on every node (bmgd)
#   SHARED   a directory that all nodes see (where sbatch was called)
#   LOCAL    a directory on every node (/tmp); %n in it is the node's name
#   LISTEN   the address to listen on (0.0.0.0); "node" is the node's own name
#
# To take a node out before it is drained for good, let its daemon leave, from anywhere in the job:
#
#   scontrol update nodename=NODE state=drain reason=...
#   srun --overlap --jobid="$SLURM_JOB_ID" --nodelist=NODE --ntasks=1 bmgd leave --control "$OVERLAY_CONTROL"
#
# (where LOCAL has %n in it, the path of the socket is another one on every node).
set -euo pipefail

port=${PORT:-7400}
bmgd=${BMGD:-bmgd}
shared=${SHARED:-$SLURM_SUBMIT_DIR}/bmgd-$SLURM_JOB_ID
own=${LOCAL:-/tmp}/bmgd-$SLURM_JOB_ID
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OVERLAY_CONTROL=unix:${own//%n/$first}/bmgd.sock

# Make a directory of this user alone; in /tmp anybody could have put one there before. One that is there
# from the job before it was queued again is used.
private() {
    mkdir -p "${1%/*}"
    mkdir -m 700 "$1" 2>/dev/null || :
    if [ -z "$(find "$1" -prune -type d -user "$(id -u)" ! -perm -020 ! -perm -002)" ]; then
        echo "$1 is not a directory of this user that nobody else can write into" >&2
        exit 1
    fi
}

umask 077
private "$shared"
head -c 32 /dev/urandom | base64 >"$shared/secret"
# Line i is node i: the order in which Slurm numbers the nodes of a job.
scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/\$/:$port/" >"$shared/peers"
size=$(wc -l <"$shared/peers")

# What each task runs, quoted so that the variables are those of its own node. It listens on all
# addresses, because many systems give their own name a loopback address.
# shellcheck disable=SC2016
task='
set -eu
line=$((SLURM_NODEID + 1))
host=$(sed -n "${line}s/:.*//p" "$4/peers")
if [ "${SLURMD_NODENAME:-$host}" != "$host" ]; then
    echo "node $SLURM_NODEID is $SLURMD_NODENAME, but line $line of $4/peers is $host" >&2
    exit 1
fi
umask 077
own=$(printf %s "$3" | sed "s/%n/$host/g")
listen=${LISTEN:-0.0.0.0}
[ "$listen" != node ] || listen=$host
private "$own"
exec "$1" run --id "$SLURM_NODEID" --size "$2" --peers "$4/peers" --secret-file "$4/secret" \
    --listen "$listen:$5" --cluster "slurm-$SLURM_JOB_ID" \
    --control "unix:$own/bmgd.sock" --state-dir "$own"
'
# One dead task must not end the others: to outlive it is what the overlay is for.
srun --kill-on-bad-exit=0 --wait=0 --nodes="$size" --ntasks="$size" --ntasks-per-node=1 \
    sh -c "$(declare -f private); $task" bmgd "$bmgd" "$size" "$own" "$shared" "$port" &
daemons=$!

if [ $# -eq 0 ]; then
    wait "$daemons"
    exit
fi

ready=no
for ((tries = 0; tries < 300; tries++)); do
    if "$bmgd" status --control "$OVERLAY_CONTROL" --json 2>/dev/null | grep -q '"state":"ready"'; then
        ready=yes
        break
    fi
    kill -0 "$daemons" 2>/dev/null || break
    sleep 0.2
done
result=1
if [ $ready = yes ]; then
    result=0
    "$@" || result=$?
else
    echo "daemon 0 is not ready" >&2
fi
# To the daemons themselves, which leave: srun would answer it by killing them.
scancel --signal=TERM "$SLURM_JOB_ID.0" 2>/dev/null || true
wait "$daemons" || true
exit "$result"
