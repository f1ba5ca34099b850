// SPDX-License-Identifier: MIT
//! Where the memory is.
use core::ffi::{c_char, c_void};
use core::mem::size_of;
use hakmem_sys as sys;
use std::ffi::CString;
use std::io;

/// Totals, in bytes unless the name says count.
pub use hakmem_sys::hak_stats as Stats;
/// What the resident memory of the process is used for, in bytes; `u64::MAX`: unknown.
pub use hakmem_sys::hak_summary as Summary;

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The summary, then all figures, for people.
    Text,
    /// All figures, in one line.
    Json,
    /// The summary alone, some twelve lines.
    Summary,
}

/// The totals of the process.
pub fn stats() -> Stats {
    let mut stats = Stats::default();
    unsafe { sys::hak_stats_read(&mut stats, size_of::<Stats>()) };
    stats
}

/// What the resident memory is used for. Asks the kernel about all of hakmem's pages, about 2 ms for each GiB. `None`: the
/// kernel does not answer.
pub fn summary() -> Option<Summary> {
    let mut summary = Summary::default();
    unsafe { sys::hak_summary_read(&mut summary, size_of::<Summary>()) }.then_some(summary)
}

/// Bytes that the calling thread has allocated, and freed, so far. Their difference is exact.
pub fn thread_bytes() -> (u64, u64) {
    let mut bytes = sys::hak_thread_bytes::default();
    unsafe { sys::hak_thread_bytes_read(&mut bytes, size_of::<sys::hak_thread_bytes>()) };
    (bytes.allocated, bytes.freed)
}

/// The number of that name in the JSON report: the keys that lead to it with dots between them, such as
/// `totals.bytes_mapped` or `classes.64.in_use`. `None`: there is none.
pub fn value(name: &str) -> Option<u64> {
    let name = CString::new(name).ok()?;
    let mut value = 0;
    unsafe { sys::hak_stats_value(name.as_ptr(), &mut value) }.then_some(value)
}

/// From now on the peaks of [`stats`] count from the present values.
pub fn reset_peaks() {
    unsafe { sys::hak_stats_reset_peaks() }
}

/// Collects the pieces of a text that `write` writes to a sink.
pub(crate) fn collect(write: impl FnOnce(sys::hak_report_sink, *mut c_void)) -> String {
    unsafe extern "C" fn append(argument: *mut c_void, text: *const c_char, size: usize) {
        let bytes = &mut *argument.cast::<Vec<u8>>();
        bytes.extend_from_slice(core::slice::from_raw_parts(text.cast(), size));
    }
    let mut bytes = Vec::new();
    write(append, (&mut bytes as *mut Vec<u8>).cast());
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// A report on the whole heap.
pub fn report(format: Format) -> String {
    let format = match format {
        Format::Text => sys::HAK_REPORT_TEXT,
        Format::Json => sys::HAK_REPORT_JSON,
        Format::Summary => sys::HAK_REPORT_SUMMARY,
    };
    collect(|sink, argument| unsafe { sys::hak_report(format, sink, argument) })
}

/// A map of the heap, one JSON document; the command `hakmem heap` makes a picture of it.
pub fn heap_map() -> String {
    collect(|sink, argument| unsafe { sys::hak_heap_map(sink, argument) })
}

pub(crate) fn result_of(error: i32) -> io::Result<()> {
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Starts the thread that answers the commands `hakmem stat`, `top` and `metrics`.
pub fn observe_start() -> io::Result<()> {
    result_of(unsafe { sys::hak_observe_start() })
}

/// Stops that thread.
pub fn observe_stop() -> io::Result<()> {
    result_of(unsafe { sys::hak_observe_stop() })
}
