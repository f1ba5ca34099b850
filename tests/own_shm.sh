#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# own_shm.sh COMMAND...: runs the command with a /dev/shm of its own, and TEST_OWN_SHM=1, where that is permitted. In the
# common one the tools of other tests remove what killed processes have left.
mount='mount -t tmpfs none /dev/shm'
if unshare --mount sh -c "$mount" 2>/dev/null; then
    TEST_OWN_SHM=1 exec unshare --mount sh -c "$mount"' && exec "$@"' sh "$@"
fi
exec "$@"
