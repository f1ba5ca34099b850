// SPDX-License-Identifier: MIT
//! The allocator, and questions about single blocks.
use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_void, CStr};
use core::ptr;
use hakmem_sys as sys;

/// hakmem, for `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hakmem;

/// Every block of hakmem is aligned to this.
const ALIGNMENT: usize = 16;

// Blocks come from hakmem and go back to it. hak_free knows the size and the alignment of a block by itself.
unsafe impl GlobalAlloc for Hakmem {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            sys::hak_malloc(layout.size()).cast()
        } else {
            sys::hak_aligned_alloc(layout.align(), layout.size()).cast()
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        sys::hak_free(block.cast());
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return sys::hak_calloc(1, layout.size()).cast();
        }
        sys::hak_aligned_calloc(layout.align(), 1, layout.size()).cast()
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return sys::hak_realloc(block.cast(), size).cast();
        }
        sys::hak_aligned_realloc(block.cast(), layout.align(), size).cast()
    }
}

/// "major.minor.patch" of the library.
pub fn version() -> &'static str {
    // The string lives as long as the library, and has digits and dots only.
    unsafe { CStr::from_ptr(sys::hak_version()) }.to_str().unwrap_or("")
}

/// Whether `pointer` points into memory of hakmem.
pub fn owns<T>(pointer: *const T) -> bool {
    unsafe { sys::hak_owns(pointer.cast()) }
}

/// Bytes that may be used at `block`.
///
/// # Safety
/// `block` must be the start of a block that hakmem has allocated and that is not freed yet.
pub unsafe fn usable_size<T>(block: *const T) -> usize {
    sys::hak_usable_size(block.cast::<c_void>())
}

/// Returns free memory to the system now, but for other threads' caches. Does nothing if only `keep` bytes or fewer could
/// be returned. True: memory was returned.
pub fn trim(keep: usize) -> bool {
    unsafe { sys::hak_trim(keep) }
}

/// Limits the bytes that hakmem maps in this process; `None`: no limit. Above `soft`, free memory goes back to the system
/// soon; beyond `hard`, allocations fail.
pub fn limit(soft: Option<usize>, hard: Option<usize>) {
    let (soft, hard) = (soft.unwrap_or(usize::MAX), hard.unwrap_or(usize::MAX));
    unsafe { sys::hak_limit_set(soft, hard, None, ptr::null_mut()) }
}
