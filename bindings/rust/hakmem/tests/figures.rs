// SPDX-License-Identifier: MIT
//! Figures of the whole process, in one of their own, so that no other test changes them.
use hakmem::Hakmem;

#[global_allocator]
static GLOBAL: Hakmem = Hakmem;

#[test]
fn figures_follow_the_program() {
    let before = hakmem::stats();
    let (allocated, freed) = hakmem::thread_bytes();
    let held: Vec<Box<[u8; 4096]>> = (0..4096).map(|_| Box::new([1; 4096])).collect();
    let after = hakmem::stats();
    assert!(
        after.bytes_in_use >= before.bytes_in_use + (16 << 20),
        "{before:?} {after:?}"
    );
    assert_eq!(hakmem::value("totals.bytes_mapped").map(|bytes| bytes > 0), Some(true));
    assert_eq!(hakmem::value("no.such.figure"), None);
    assert_eq!(hakmem::value("with\0zero"), None);
    if let Some(summary) = hakmem::summary() {
        assert!(summary.in_use + summary.rounding >= 16 << 20, "{summary:?}");
    }
    let (allocated_now, freed_now) = hakmem::thread_bytes();
    assert!(allocated_now - allocated >= 16 << 20 && freed_now >= freed);
    drop(held);
    assert!(hakmem::thread_bytes().1 - freed >= 16 << 20);
    hakmem::reset_peaks();
    hakmem::trim(0);
}
