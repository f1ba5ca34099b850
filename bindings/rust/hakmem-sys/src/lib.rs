// SPDX-License-Identifier: MIT
//! The C functions of hakmem, a malloc for Linux. `hakmem.h`, which is in the package, describes each of them, and says
//! what holds for all: any thread may call them at any time, sizes are in bytes.
#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_int, c_void};

/// `struct hak_stats`: bytes of address space, resident or not, unless the name says count.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_stats {
    pub version: u32,
    pub size: u32,
    pub bytes_mapped: usize,
    pub bytes_metadata: usize,
    pub bytes_in_use: usize,
    pub bytes_cached: usize,
    pub bytes_free_dirty: usize,
    pub objects_in_use_count: usize,
    pub arenas_count: usize,
    pub arenas_parked_count: usize,
    pub threads_count: usize,
    pub superslabs_count: usize,
    pub huge_count: usize,
    pub bytes_free_in_slabs: usize,
    pub bytes_free_clean: usize,
    pub bytes_discarded: usize,
    pub peak_bytes_mapped: usize,
    pub peak_bytes_taken: usize,
}

/// `struct hak_summary`: what the resident memory is used for, in bytes; `u64::MAX`: unknown.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_summary {
    pub version: u32,
    pub size: u32,
    pub rss: u64,
    pub in_use: u64,
    pub rounding: u64,
    pub thread_caches: u64,
    pub free_in_slabs: u64,
    pub kept: u64,
    pub tables: u64,
    pub not_hakmem: u64,
    pub peak_rss: u64,
    pub swapped: u64,
    pub rounding_requests_count: u64,
    pub fragmentation_permille: u64,
}

/// `struct hak_thread_bytes`: what the calling thread has allocated and freed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct hak_thread_bytes {
    pub version: u32,
    pub size: u32,
    pub allocated: u64,
    pub freed: u64,
}

/// `enum hak_report_format`.
pub type hak_report_format = u32;
pub const HAK_REPORT_TEXT: hak_report_format = 0;
pub const HAK_REPORT_JSON: hak_report_format = 1;
pub const HAK_REPORT_SUMMARY: hak_report_format = 2;

pub type hak_report_sink = unsafe extern "C" fn(argument: *mut c_void, text: *const c_char, size: usize);
pub type hak_limit_function = unsafe extern "C" fn(mapped: usize, argument: *mut c_void);

extern "C" {
    pub fn hak_version() -> *const c_char;

    pub fn hak_malloc(size: usize) -> *mut c_void;
    pub fn hak_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn hak_realloc(pointer: *mut c_void, size: usize) -> *mut c_void;
    pub fn hak_reallocarray(pointer: *mut c_void, count: usize, size: usize) -> *mut c_void;
    pub fn hak_free(pointer: *mut c_void);
    pub fn hak_free_sized(pointer: *mut c_void, size: usize);
    pub fn hak_free_aligned_sized(pointer: *mut c_void, alignment: usize, size: usize);
    pub fn hak_resize(pointer: *mut c_void, size: usize) -> bool;
    pub fn hak_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    pub fn hak_aligned_calloc(alignment: usize, count: usize, size: usize) -> *mut c_void;
    pub fn hak_aligned_realloc(pointer: *mut c_void, alignment: usize, size: usize) -> *mut c_void;
    pub fn hak_memalign(alignment: usize, size: usize) -> *mut c_void;
    pub fn hak_posix_memalign(result: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    pub fn hak_valloc(size: usize) -> *mut c_void;
    pub fn hak_pvalloc(size: usize) -> *mut c_void;
    pub fn hak_alloc_at(size: usize, site: usize) -> *mut c_void;
    pub fn hak_free_at(pointer: *mut c_void, size: usize, site: usize);

    pub fn hak_usable_size(pointer: *const c_void) -> usize;
    pub fn hak_good_size(size: usize) -> usize;
    pub fn hak_owns(pointer: *const c_void) -> bool;
    pub fn hak_trim(keep: usize) -> bool;
    pub fn hak_limit_set(soft: usize, hard: usize, over: Option<hak_limit_function>, argument: *mut c_void);

    pub fn hak_stats_read(stats: *mut hak_stats, size: usize);
    pub fn hak_summary_read(summary: *mut hak_summary, size: usize) -> bool;
    pub fn hak_thread_bytes_read(bytes: *mut hak_thread_bytes, size: usize);
    pub fn hak_stats_value(name: *const c_char, value: *mut u64) -> bool;
    pub fn hak_stats_reset_peaks();
    pub fn hak_report(format: hak_report_format, sink: hak_report_sink, argument: *mut c_void);
    pub fn hak_heap_map(sink: hak_report_sink, argument: *mut c_void);

    pub fn hak_profile_start(period: usize) -> c_int;
    pub fn hak_profile_stop();
    pub fn hak_profile_write(sink: hak_report_sink, argument: *mut c_void);

    pub fn hak_site_register(name: *const c_char) -> usize;
    pub fn hak_site_enter(site: usize) -> usize;
    pub fn hak_site_leave(before: usize);

    pub fn hak_observe_start() -> c_int;
    pub fn hak_observe_stop() -> c_int;
}
