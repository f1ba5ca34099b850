// SPDX-License-Identifier: MIT
//! The heap profiler: which call stacks hold the memory.
use crate::statistics::{collect, result_of};
use hakmem_sys as sys;
use std::io;

/// Starts to sample about one allocation in each `period` bytes. 0: 512 KiB, and less often in a thread that would sample
/// more than 4,000 blocks a second.
pub fn start(period: usize) -> io::Result<()> {
    result_of(unsafe { sys::hak_profile_start(period) })
}

/// Stops sampling. The profile keeps its sums.
pub fn stop() {
    unsafe { sys::hak_profile_stop() }
}

/// The profile so far, a line of JSON; the command `hakmem profile FILE` shows it.
pub fn text() -> String {
    collect(|sink, argument| unsafe { sys::hak_profile_write(sink, argument) })
}
