//! How is the program linked? What the same code is compiled to more than once (each generic function, for each type that
//! looks alike in memory) is kept once: a process's memory is to a good part its own text.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    // The linker that the pinned toolchain brings for this target; others may not know the option.
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}
