//! Reads processor time and memory of the measured process from `/proc`.
//!
//! Read from `/proc`, so it works for any server on the same machine, and only there. Memory is anonymous memory
//! (`RssAnon`): heap and stacks. Pages of the executable are not counted, because the kernel can drop them at any time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;

/// Clock ticks in a second, as `/proc` counts them: the kernel's interface to programs fixes it at 100.
const TICKS_PER_SECOND: f64 = 100.0;
/// How often the memory is read for the peak: the kernel records a peak of all resident memory only. jemalloc keeps what
/// is freed for a tenth of a second, so that shorter peaks are seen as well.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// A process that is watched.
#[derive(Debug)]
pub(super) struct Process {
    root: PathBuf,
    /// The most anonymous memory that any reading has shown. The sampling thread ends with this.
    peak_bytes: Arc<AtomicU64>,
}

/// Processor time and memory used so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usage {
    /// User and system time of all threads.
    pub(super) cpu_seconds: f64,
    /// Anonymous memory now.
    pub(super) anonymous_bytes: u64,
    /// The most it was while it was watched.
    pub(super) peak_bytes: u64,
}

impl Process {
    pub(super) fn new(pid: u32) -> anyhow::Result<Process> {
        let root = PathBuf::from(format!("/proc/{pid}"));
        let process = Process { root: root.clone(), peak_bytes: Arc::default() };
        process.usage().with_context(|| format!("--pid {pid}"))?;
        let peak_bytes = Arc::downgrade(&process.peak_bytes);
        std::thread::spawn(move || {
            while let (Some(peak), Ok(bytes)) = (peak_bytes.upgrade(), anonymous_bytes(&root)) {
                peak.fetch_max(bytes, Ordering::Relaxed);
                drop(peak);
                std::thread::sleep(SAMPLE_EVERY);
            }
        });
        Ok(process)
    }

    pub(super) fn usage(&self) -> anyhow::Result<Usage> {
        let anonymous_bytes = anonymous_bytes(&self.root)?;
        let peak = self.peak_bytes.fetch_max(anonymous_bytes, Ordering::Relaxed);
        let cpu_seconds = cpu_seconds(&read(&self.root, "stat")?).with_context(|| ended(&self.root))?;
        Ok(Usage { cpu_seconds, anonymous_bytes, peak_bytes: peak.max(anonymous_bytes) })
    }
}

fn anonymous_bytes(root: &Path) -> anyhow::Result<u64> {
    parse_anonymous_bytes(&read(root, "status")?).with_context(|| ended(root))
}

fn read(root: &Path, name: &str) -> anyhow::Result<String> {
    let path = root.join(name);
    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

fn ended(root: &Path) -> String {
    format!("{}: the process ended, or /proc is not Linux's", root.display())
}

fn parse_anonymous_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    // The second field is the program's name in brackets, and may hold anything, brackets and spaces too.
    let after_name = stat.rsplit_once(')')?.1;
    // From the third field on: utime and stime are the 14th and 15th.
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(ticks as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_name_full_of_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 150 0 0 20 0 5 0 100 1 2";
        assert_eq!(cpu_seconds(stat), Some(4.0));
        assert_eq!(cpu_seconds("7 (a"), None);
    }

    #[test]
    fn only_anonymous_memory_is_counted() {
        let status = "Name:\ta) b (c)\nVmHWM:\t    4096 kB\nVmRSS:\t    2048 kB\nRssAnon:\t    1024 kB\n";
        assert_eq!(parse_anonymous_bytes(status), Some(1 << 20));
        assert_eq!(parse_anonymous_bytes("Name:\tzombie\n"), None);
    }

    #[test]
    fn a_peak_of_this_very_process_is_seen_after_the_memory_is_given_back() {
        const FILLED: usize = 128 << 20;
        // Other tests of this process may give memory back meanwhile.
        const EXPECTED: u64 = 64 << 20;
        let process = Process::new(std::process::id()).unwrap();
        let before = process.usage().unwrap();
        assert!(before.anonymous_bytes > 0 && before.peak_bytes >= before.anonymous_bytes);
        // Large enough that the allocator maps it for itself, and unmaps it when it is dropped.
        let filled = vec![1_u8; FILLED];
        let deadline = Instant::now() + Duration::from_secs(10);
        while process.peak_bytes.load(Ordering::Relaxed) < before.anonymous_bytes + EXPECTED {
            assert!(Instant::now() < deadline, "no reading shows the memory that was filled");
            std::thread::yield_now();
        }
        drop(filled);
        assert!(process.usage().unwrap().peak_bytes >= before.anonymous_bytes + EXPECTED);
        assert!(Process::new(u32::MAX).is_err());
    }
}
