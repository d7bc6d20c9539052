//! The executable `pawl`.

use std::process::ExitCode;

/// jemalloc: the C library's allocator took a third of an API server's processor time (docs/decisions/0024-memory.md). Its
/// settings are in `.cargo/config.toml`.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    pawl_cli::main()
}
