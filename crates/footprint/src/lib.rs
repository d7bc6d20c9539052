//! What does a process take of a machine's memory?
//!
//! Whoever links this crate allocates with jemalloc: the C library's allocator took a third of an API server's processor
//! time, most of it in locks and in looking for room (docs/decisions/0024-memory.md). And whoever has started may give
//! back the pages of the program that only the start needed.

#[cfg(target_os = "linux")]
mod pages;

/// How it allocates is set when it is built: `.cargo/config.toml`.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Gives back the pages of this program that are mapped, and of which most will not be needed again: says how many bytes
/// they were. Those that are needed come back from the page cache as they are touched. Elsewhere than on Linux, or where
/// the kernel does not tell, nothing happens.
pub fn give_back_program() -> usize {
    #[cfg(target_os = "linux")]
    return pages::give_back();
    #[cfg(not(target_os = "linux"))]
    0
}
