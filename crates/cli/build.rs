//! Where do the program's functions lie? What runs together lies together (docs/decisions/0025-layout.md).
//!
//! The linker gets the names in `layout/`, which `make layout` takes from running controllers and servers. A name that is not
//! there any more is passed over: then its function lies elsewhere, and nothing else changes.

use std::path::Path;
use std::{env, fs, io};

/// In this order: what the first takes is not spread over what only the second needs.
const LISTS: [&str; 2] = ["layout/controllers.txt", "layout/server.txt"];

fn main() -> io::Result<()> {
    for list in LISTS {
        println!("cargo::rerun-if-changed={list}");
    }
    if !is_wanted() {
        return Ok(());
    }
    let order = Path::new(&said("OUT_DIR")).join("order.txt");
    fs::write(&order, LISTS.into_iter().map(fs::read_to_string).collect::<io::Result<String>>()?)?;
    println!("cargo::rustc-link-arg-bins=-Wl,--symbol-ordering-file={}", order.display());
    println!("cargo::rustc-link-arg-bins=-Wl,--no-warn-symbol-ordering");
    Ok(())
}

/// For a release alone, and where the linker is the one that comes with Rust, which understands it.
fn is_wanted() -> bool {
    let own_linker = said("TARGET") == "x86_64-unknown-linux-gnu"
        && env::var_os("RUSTC_LINKER").is_none()
        && !said("CARGO_ENCODED_RUSTFLAGS").contains("link");
    said("PROFILE") == "release" && own_linker
}

fn said(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
