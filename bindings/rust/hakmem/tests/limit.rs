// SPDX-License-Identifier: MIT
//! Limits, in a process of their own.
use hakmem::Hakmem;

#[global_allocator]
static GLOBAL: Hakmem = Hakmem;

#[test]
fn beyond_the_hard_limit_allocations_fail() {
    hakmem::limit(None, Some(64 << 20));
    let mut block: Vec<u8> = Vec::new();
    assert!(block.try_reserve_exact(256 << 20).is_err());
    hakmem::limit(None, None);
    assert!(block.try_reserve_exact(256 << 20).is_ok());
}
