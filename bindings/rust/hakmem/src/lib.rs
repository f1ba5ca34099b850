// SPDX-License-Identifier: MIT
//! hakmem as the global allocator of a program, and what it knows of the program's memory.
//!
//! ```
//! #[global_allocator]
//! static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
//!
//! let text = String::from("on hakmem");
//! assert!(hakmem::owns(text.as_ptr()));
//! ```
//!
//! All functions may be called from any thread. Figures are also right without the allocator above: they then tell of
//! what was allocated by hakmem's C functions.

mod allocator;
pub mod profile;
mod site;
mod statistics;

pub use allocator::{limit, owns, trim, usable_size, version, Hakmem};
pub use site::{Scope, Site};
pub use statistics::{heap_map, observe_start, observe_stop, report, reset_peaks, stats, summary, value, Format};
pub use statistics::{thread_bytes, Stats, Summary};
