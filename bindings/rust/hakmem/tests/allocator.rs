// SPDX-License-Identifier: MIT
//! A program whose global allocator is hakmem.
use hakmem::{Format, Hakmem, Site};
use std::alloc::{GlobalAlloc, Layout};
use std::slice::from_raw_parts;

#[global_allocator]
static GLOBAL: Hakmem = Hakmem;

#[test]
fn version_is_the_crates() {
    assert_eq!(hakmem::version(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn boxes_are_hakmems() {
    let small = Box::new(1u8);
    let huge = vec![1u8; 8 << 20];
    let local = 1u8;
    assert!(hakmem::owns(&*small));
    assert!(hakmem::owns(huge.as_ptr()));
    assert!(!hakmem::owns(&local));
    assert!(unsafe { hakmem::usable_size(huge.as_ptr()) } >= 8 << 20);
}

#[test]
fn every_layout_keeps_its_promises() {
    for size in [1, 7, 16, 100, 1041, 5000, 70_000, 3 << 20] {
        for power in 0..16 {
            let layout = Layout::from_size_align(size, 1 << power).unwrap();
            unsafe { check_layout(layout) };
        }
    }
}

unsafe fn check_layout(layout: Layout) {
    let size = layout.size();
    let half = (size + 1) / 2;
    let pattern: Vec<u8> = (0..=255).cycle().take(size).collect();
    let zeroed = GLOBAL.alloc_zeroed(layout);
    assert_eq!(zeroed as usize % layout.align(), 0, "{layout:?}");
    assert!(from_raw_parts(zeroed, size) == vec![0; size], "{layout:?}");
    let block = GLOBAL.alloc(layout);
    assert_eq!(block as usize % layout.align(), 0, "{layout:?}");
    block.copy_from(pattern.as_ptr(), size);
    let grown = GLOBAL.realloc(block, layout, size * 2);
    assert_eq!(grown as usize % layout.align(), 0, "{layout:?}");
    assert!(from_raw_parts(grown, size) == pattern, "{layout:?}");
    let doubled = Layout::from_size_align(size * 2, layout.align()).unwrap();
    let shrunk = GLOBAL.realloc(grown, doubled, half);
    assert_eq!(shrunk as usize % layout.align(), 0, "{layout:?}");
    assert!(from_raw_parts(shrunk, half) == &pattern[..half], "{layout:?}");
    GLOBAL.dealloc(shrunk, Layout::from_size_align(half, layout.align()).unwrap());
    GLOBAL.dealloc(zeroed, layout);
}

#[test]
fn threads_free_each_others_blocks() {
    let (sender, receiver) = std::sync::mpsc::channel::<Vec<String>>();
    let maker = std::thread::spawn(move || {
        for round in 0..100 {
            sender
                .send((0..100).map(|number| format!("{round} {number}")).collect())
                .unwrap();
        }
    });
    let count: usize = receiver.iter().map(|words| words.len()).sum();
    maker.join().unwrap();
    assert_eq!(count, 10_000);
}

#[test]
fn the_structs_are_the_librarys() {
    // The library says how many bytes it has filled, at most those of its own struct.
    let mut room = [0u64; 512];
    unsafe { hakmem_sys::hak_stats_read(room.as_mut_ptr().cast(), std::mem::size_of_val(&room)) };
    assert_eq!((room[0] >> 32) as usize, std::mem::size_of::<hakmem::Stats>());
    unsafe { hakmem_sys::hak_summary_read(room.as_mut_ptr().cast(), std::mem::size_of_val(&room)) };
    assert_eq!((room[0] >> 32) as usize, std::mem::size_of::<hakmem::Summary>());
}

#[test]
fn reports_are_whole() {
    let json = hakmem::report(Format::Json);
    assert!(json.starts_with('{') && json.contains("\"bytes_mapped\""), "{json}");
    assert!(hakmem::report(Format::Text).len() > hakmem::report(Format::Summary).len());
    assert!(hakmem::heap_map().contains("heap_map"));
}

#[test]
fn sites_are_named_in_profiles() {
    let site = Site::new("tests.sites");
    assert_eq!(site, Site::new("tests.sites"));
    if hakmem::profile::start(4096).is_err() {
        return; // a process without an unwinder
    }
    let held: Vec<Vec<u8>> = {
        let _scope = site.enter();
        (0..200).map(|_| vec![1; 10_000]).collect()
    };
    hakmem::profile::stop();
    let profile = hakmem::profile::text();
    assert!(profile.contains("hakmem_profile"), "{profile}");
    assert!(profile.contains("tests.sites"), "{profile}");
    drop(held);
}

#[test]
fn the_observer_starts_and_stops() {
    if hakmem::observe_start().is_ok() {
        hakmem::observe_stop().unwrap();
    }
}

/// With the feature, blocks that the C library allocates are hakmem's, too; without it they are not.
#[test]
fn the_c_library_is_served_by_the_feature() {
    extern "C" {
        fn strdup(text: *const std::ffi::c_char) -> *mut std::ffi::c_char;
        fn free(block: *mut std::ffi::c_void);
    }
    let copy = unsafe { strdup(b"text\0".as_ptr().cast()) };
    assert_eq!(hakmem::owns(copy), cfg!(feature = "override"));
    unsafe { free(copy.cast()) };
}
