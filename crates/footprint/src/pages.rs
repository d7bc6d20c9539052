//! Which pages of the program can be given back?
//!
//! ```text
//! /proc/self/smaps
//! 55d1c0a00000-55d1c3062000 r-xp 00f37000 fe:00 1234   /usr/bin/pawl     ours, not writable …
//! Rss:               26424 kB
//! Anonymous:             0 kB                                            … and nothing in it was ever written: neither
//! Swap:                  0 kB                                            what is in memory nor what is swapped out
//! ```
//! A start goes through much of a program once, and the kernel maps sixteen pages around each that is touched: some thirty
//! megabytes for a process that needs one while it rests, and eight while it answers.

use std::ffi::c_void;
use std::ptr::NonNull;

use nix::sys::mman::{MmapAdvise, madvise};

/// Some pages in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: usize,
    length: usize,
    /// How many of the bytes are in memory.
    resident: usize,
    /// What the kernel has said so far of bytes that are the process's own.
    own: Own,
}

/// Whether a mapping has pages that differ from the file: what the linker has relocated has no other copy. Only where the
/// kernel says of both kinds that there are none is it known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Own {
    none_in_memory: bool,
    none_swapped_out: bool,
}

const NONE: Own = Own { none_in_memory: true, none_swapped_out: true };

pub(crate) fn give_back() -> usize {
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return 0 };
    let (Some(program), Ok(smaps)) = (program.to_str(), std::fs::read_to_string("/proc/self/smaps")) else {
        return 0;
    };
    clean_of(&smaps, program).into_iter().filter(|range| forget(*range)).map(|range| range.resident).sum()
}

/// The mappings of a file that cannot be written and in which nothing was.
fn clean_of(smaps: &str, program: &str) -> Vec<Range> {
    let mut found: Vec<Range> = Vec::new();
    let mut inside = false;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        let Some(name) = first.strip_suffix(':') else {
            let range = header(first, words.next(), line, program);
            inside = range.is_some();
            found.extend(range);
            continue;
        };
        let kib = words.next().and_then(|word| word.parse::<usize>().ok());
        let (Some(range), Some(kib)) = (found.last_mut().filter(|_| inside), kib) else { continue };
        match name {
            "Rss" => range.resident = kib.saturating_mul(1024),
            "Anonymous" => range.own.none_in_memory = kib == 0,
            "Swap" => range.own.none_swapped_out = kib == 0,
            _ => {}
        }
    }
    found.retain(|range| range.own == NONE);
    found
}

/// `start-end perms offset device inode path`, of which the path may have spaces.
fn header(addresses: &str, permissions: Option<&str>, line: &str, program: &str) -> Option<Range> {
    let (start, end) = addresses.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let length = usize::from_str_radix(end, 16).ok()?.checked_sub(start)?;
    let read_only = permissions.is_some_and(|bits| bits.starts_with('r') && !bits.contains('w'));
    let ours = line.strip_suffix(program).is_some_and(|before| before.ends_with(' '));
    (read_only && ours && length > 0).then_some(Range { start, length, resident: 0, own: Own::default() })
}

/// Whether the kernel did.
#[expect(unsafe_code, reason = "an address range cannot be advised otherwise")]
fn forget(range: Range) -> bool {
    let Some(start) = NonNull::new(std::ptr::without_provenance_mut::<c_void>(range.start)) else {
        return false;
    };
    // SAFETY: the range is a mapping of this program's own file, which lives as long as the process. Nobody can write to
    // it, and nobody has (no page of it is anonymous, in memory or swapped out), so that every page is what the file says.
    // After the call a page that is touched is read from that very file again, with the same content: no memory changes.
    unsafe { madvise(start, range.length, MmapAdvise::MADV_DONTNEED) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d1bfa00000-55d1c0a00000 r--p 00000000 fe:00 77                         /opt/a b/pawl
Size:              16384 kB
Rss:                5336 kB
Anonymous:             0 kB
Swap:                  0 kB
55d1c0a00000-55d1c3062000 r-xp 00f37000 fe:00 77                         /opt/a b/pawl
Rss:               26424 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
55d1c3062000-55d1c32e4000 r--p 03598000 fe:00 77                         /opt/a b/pawl
Rss:                2548 kB
Anonymous:          2548 kB
Swap:                  0 kB
55d1c32e2000-55d1c32e4000 r--p 03818000 fe:00 77                         /opt/a b/pawl
Rss:                   0 kB
Anonymous:             0 kB
Swap:                  8 kB
55d1c32e4000-55d1c32f0000 rw-p 0381a000 fe:00 77                         /opt/a b/pawl
Rss:                  12 kB
Anonymous:             0 kB
Swap:                  0 kB
7f2d11000000-7f2d11158000 r-xp 00026000 fe:00 12                         /usr/lib/libc.so.6
Rss:                1092 kB
Anonymous:             0 kB
Swap:                  0 kB
7f2d12000000-7f2d12158000 r-xp 00026000 fe:00 12                         /elsewhere/opt/a b/pawl
Rss:                1092 kB
Anonymous:             0 kB
Swap:                  0 kB
7f2d13000000-7f2d13200000 r--p 00000000 00:00 0
Rss:                  88 kB
Anonymous:             0 kB
Swap:                  0 kB
";

    #[test]
    fn only_what_is_ours_and_clean_and_cannot_be_written_is_given_back() {
        let clean = clean_of(SMAPS, "/opt/a b/pawl");
        let expected = [
            Range { start: 0x55d1_bfa0_0000, length: 0x0100_0000, resident: 5336 * 1024, own: NONE },
            Range { start: 0x55d1_c0a0_0000, length: 0x0266_2000, resident: 26424 * 1024, own: NONE },
        ];
        assert_eq!(clean, expected);
    }

    #[test]
    fn what_cannot_be_understood_is_not_touched() {
        for smaps in [
            "",
            "zz-yy r-xp 0 0 0 /p\nRss: 4 kB",
            "9-1 r-xp 0 0 0 /p",
            "Rss: 4 kB\nAnonymous: 4 kB",
            "1-1 r-xp 0 0 0 /p",
            // What is not said is not known.
            "1-9 r-xp 0 0 0 /p\nRss: 4 kB\nAnonymous: 0 kB",
            "1-9 r-xp 0 0 0 /p\nRss: 4 kB\nSwap: 0 kB",
            "1-9 r-xp 0 0 0 /p\nAnonymous: none\nSwap: 0 kB",
            "1-9 r-xp 0 0 0 /p\nAnonymous: 0 kB\nSwap: 4 kB",
        ] {
            assert_eq!(clean_of(smaps, "/p"), [], "{smaps}");
        }
    }

    #[test]
    fn a_program_goes_on_after_it_has_given_back_its_own_pages() {
        let words: Vec<String> = (0..1_000).map(|at| format!("word {at}")).collect();
        assert!(give_back() > 0, "this very test was mapped");
        assert_eq!(words.iter().filter(|word| word.ends_with('7')).count(), 100);
        assert_eq!(std::thread::spawn(move || words.concat().len()).join().unwrap(), 7_890);
    }
}
