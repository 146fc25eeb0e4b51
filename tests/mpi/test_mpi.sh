#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks of MPI that train together: examples/train_mpi and the cases of tests/mpi/ranks. $MPIRUN starts
# them.
set -u
skip() {
    echo "1..0 # SKIP $*"
    exit 0
}
ranks=$PWD/tests/mpi/ranks example=$PWD/examples/train_mpi
if [ -z "${MPIRUN-}" ] || [ ! -x "$example" ]; then
    skip 'no libkiln-mpi in this build: install libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich'
fi

if ${NM:-nm} "$ranks" 2>/dev/null | grep -qE '__(asan|ubsan)_'; then
    skip 'MPI is built without sanitizers'
fi

. "${srcdir:-.}/tests/shell-tests"
# Open MPI: as root, and more ranks than cores. Processors are shared.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none # 5
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
# What lets calls of OpenCL fail.
export OPENCL_LAYERS="${KILN_TEST_LAYER-}"
# PoCL's cache is what the ranks share.
export KILN_CACHE=off

# It ends by itself, long before.
mpi() {
    count=$1
    shift
    timeout 600 "$MPIRUN" -n "$count" "$@" </dev/null
}

# What ends with any status but 0 and timeout's.
fails() {
    mpi "$@"
    code=$?
    [ "$code" -ne 0 ] && [ "$code" -ne 124 ]
}

# MPI is built without it: what MPI's own threads and locks do is not looked at.
if ${NM:-nm} "$ranks" | grep -q '__tsan_'; then
    export TSAN_OPTIONS="${TSAN_OPTIONS-}:ignore_noninstrumented_modules=1"
    check 'threads of two ranks, whose sums overlap each other and what devices do' 0 \
        '^losses step-fails update-fails sharded sharding-fails: well$' \
        mpi 2 "$ranks" losses step-fails update-fails sharded sharding-fails
    finish
    exit
fi

library=$PWD/.libs/libkiln.so.0
needs() {
    ldd "$1" | grep -i mpi || echo none
}
[ ! -f "$library" ] || check 'who has one machine has no MPI' 0 '^none$' needs "$library"

# Alone first: where three ranks compiled the same kernels into one cache of PoCL 3.1, a build failed once.
check 'one rank' 0 '^losses: well$' mpi 1 "$ranks" losses
check 'three ranks of two contexts: the losses of one, the same bits, errors told in all' 0 \
    '^losses step-fails update-fails making-fails arguments: well$' \
    mpi 3 "$ranks" losses step-fails update-fails making-fails arguments
check 'four ranks, which exchange halves: the same' 0 '^losses step-fails: well$' mpi 4 "$ranks" losses step-fails
check 'two ranks with parts of the state: the same bits, and errors told in both' 0 \
    '^sharded sharding-fails: well$' mpi 2 "$ranks" sharded sharding-fails
check 'a disk that is full ends nothing, nor what was saved before' 0 '^disk-fills: well$' mpi 2 "$ranks" disk-fills
check 'an MPI that fails ends no process' 0 '^mpi-fails: well$' mpi 2 "$ranks" mpi-fails
check 'MPI for one thread is refused' 0 '^one-thread: well$' mpi 1 "$ranks" one-thread
check 'a rank that does not answer is waited for no longer than was said' 0 \
    'rank 0: kiln_mpi: rank 0 of 2 has waited 1 s for the others' fails 2 "$ranks" silent
check 'the library ends all ranks where it is asked to' 0 \
    '^kiln_mpi: rank 0 of 2 has waited 1 s' fails 2 "$ranks" silent-aborts
check 'a rank that never comes is waited for no longer' 0 \
    'the other ranks have not called it within 1 s' fails 2 "$ranks" comes-not
check 'all ranks are ended where one never comes, if that is asked for' 0 \
    '^kiln_mpi_create: the other ranks have not called it within 1 s' fails 2 "$ranks" comes-not-aborts
check 'a rank that is killed ends the others' 0 '[Kk]illed\|KILLED' fails 2 "$ranks" dies
# With what status that one ends is its own affair.
ends() {
    mpi "$@"
    [ $? -ne 124 ]
}
printf '#!/bin/sh\n"%s" dies-unseen || sleep 600\n' "$ranks" >"$folder/unseen"
check 'a rank that dies unseen by the launcher is waited for no longer than was said' 0 \
    'rank 0: kiln_mpi: rank 0 of 2 has waited 1 s for the others' ends 2 sh "$folder/unseen"

# The losses of epochs, in ten-thousandths: rounding may change the last places.
losses() {
    awk '/^epoch/ { printf "%d ", $4 * 10000 + 0.5 }' "$1"
}

# near WANTED FOUND: as many losses, each within two ten-thousandths
near() {
    echo "wanted $1, found $2"
    echo "$1/$2" | awk -F/ '{
        n = split($1, a, " ")
        m = split($2, b, " ")
        for (i = 1; i <= n; i++)
            if (a[i] - b[i] > 2 || b[i] - a[i] > 2)
                exit 1
        exit !(n > 0 && n == m)
    }'
}

check 'the example reads digits, alone' 0 'right (.*) by 1 ranks' mpi 1 "$example" --epochs 6
cp "$folder/said" "$folder/one"
check 'two ranks keep parts of the state, and save the whole' 0 'right (.*) by 2 ranks' \
    mpi 2 "$example" --shard --epochs 6 --stop 2 --save "$folder/saved"
cp "$folder/said" "$folder/parts"
check 'three ranks go on from that with other parts' 0 'right (.*) by 3 ranks' \
    mpi 3 "$example" --shard --epochs 6 --stop 4 --resume "$folder/saved" --save "$folder/saved"
cat "$folder/said" >>"$folder/parts"
check 'two go on with the whole in each' 0 'right (.*) by 2 ranks' \
    mpi 2 "$example" --epochs 6 --resume "$folder/saved"
cat "$folder/said" >>"$folder/parts"
check 'all have the losses of one rank' 0 '^wanted' \
    near "$(losses "$folder/one")" "$(losses "$folder/parts")"
check 'a file that is not there ends all ranks' 0 'going on: .*kiln_load_into' fails 2 "$example" \
    --resume "$folder/absent"

# From Python, where it has mpi4py for the same MPI.
of_same_mpi='
import mpi4py, sys
mpi4py.rc.initialize = False
from mpi4py import MPI
sys.exit(("Open MPI" in MPI.Get_library_version()) != sys.argv[1].startswith("ompi"))'
for python in python3 /usr/bin/python3; do
    "$python" -c "$of_same_mpi" "${MPI_MODULE-}" >"$folder/said" 2>&1 && break
    python=
done
if [ -f "$library" ] && [ -n "$python" ]; then
    source=$(cd "${srcdir:-.}" && pwd)
    cp -R "$source/python/kiln" "$folder" && chmod -R u+w "$folder/kiln" &&
        "$python" -B "$source/python/generate.py" "$source" "$folder/kiln" || exit 99
    export KILN_LIBRARY="$library" PYTHONPATH="$folder" PYTHONDONTWRITEBYTECODE=1
    check 'ranks of mpi4py train as numpy does' 0 '^python: well$' mpi 2 "$python" \
        "$source/tests/mpi/ranks.py"
else
    number=$((number + 1))
    echo "ok $number - ranks of mpi4py # SKIP no mpi4py for this MPI: install python3-mpi4py"
fi
finish
