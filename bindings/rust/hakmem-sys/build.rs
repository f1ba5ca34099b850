// SPDX-License-Identifier: MIT
//! Compiles hakmem: the file in the package, or, in a checkout, the one that tools/amalgamate.py makes of its sources.
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of hakmem.c.
fn find_source() -> PathBuf {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let vendored = here.join("vendor");
    println!("cargo:rerun-if-changed={}", vendored.join("hakmem.c").display());
    if vendored.join("hakmem.c").exists() {
        return vendored;
    }
    let checkout = here.join("../../..");
    let tool = checkout.join("tools/amalgamate.py");
    if !tool.exists() {
        panic!("vendor/hakmem.c is missing: tools/amalgamate.py of hakmem's source tree writes it");
    }
    for part in ["src", "include", "tools/amalgamate.py", "LICENSE"] {
        println!("cargo:rerun-if-changed={}", checkout.join(part).display());
    }
    let made = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("source");
    run_tool(&tool, &made);
    made
}

fn run_tool(tool: &Path, directory: &Path) {
    match Command::new("python3").arg(tool).arg(directory).status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("tools/amalgamate.py failed ({status})"),
        Err(error) => panic!("tools/amalgamate.py needs python3: {error}"),
    }
}

fn main() {
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if system != "linux" {
        panic!("hakmem is for Linux, not for {system}");
    }
    let replaces = env::var_os("CARGO_FEATURE_OVERRIDE").is_some();
    let mut build = cc::Build::new();
    build
        .file(find_source().join("hakmem.c"))
        .define("HAK_OVERRIDE", if replaces { "1" } else { "0" })
        .flag("-std=gnu11")
        .flag("-fvisibility=hidden")
        .warnings(false);
    // An allocator without optimisation makes every debug build slow, and nobody steps through it.
    if env::var("OPT_LEVEL").as_deref() == Ok("0") {
        build.opt_level(2);
    }
    build.compile("hakmem");
}
