// SPDX-License-Identifier: MIT
//! Where the memory of a program is: `cargo run --release --example heap`.
use hakmem::{Format, Hakmem};
use std::collections::HashMap;

#[global_allocator]
static GLOBAL: Hakmem = Hakmem;

fn main() {
    let words: HashMap<u32, String> = (0..100_000).map(|number| (number, format!("word {number}"))).collect();
    println!("hakmem {} serves {} words", hakmem::version(), words.len());
    println!(
        "in use: {} bytes in {} blocks",
        hakmem::stats().bytes_in_use,
        hakmem::stats().objects_in_use_count
    );
    drop(words);
    hakmem::trim(0);
    print!("{}", hakmem::report(Format::Summary));
}
