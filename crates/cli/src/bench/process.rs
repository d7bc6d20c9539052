//! What did the server's process use?
//!
//! Read from `/proc`, so it works for any server on the same machine, and only there.

use std::path::PathBuf;

use anyhow::Context as _;

/// Clock ticks in a second, as `/proc` counts them: the kernel's interface to programs fixes it at 100.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process that is watched.
#[derive(Debug, Clone)]
pub(super) struct Process {
    root: PathBuf,
}

/// What it has used until now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usage {
    /// User and system time of all threads.
    pub(super) cpu_seconds: f64,
    /// Resident memory now.
    pub(super) resident_bytes: u64,
    /// The most it ever was.
    pub(super) peak_bytes: u64,
}

impl Process {
    pub(super) fn new(pid: u32) -> anyhow::Result<Process> {
        let process = Process { root: PathBuf::from(format!("/proc/{pid}")) };
        process.usage().with_context(|| format!("--pid {pid}"))?;
        Ok(process)
    }

    pub(super) fn usage(&self) -> anyhow::Result<Usage> {
        let read = |name: &str| {
            let path = self.root.join(name);
            std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        let (stat, status) = (read("stat")?, read("status")?);
        parse(&stat, &status).context("the process ended, or /proc is not Linux's")
    }
}

fn parse(stat: &str, status: &str) -> Option<Usage> {
    // The second field is the program's name in brackets, and may hold anything, brackets and spaces too.
    let after_name = stat.rsplit_once(')')?.1;
    // From the third field on: utime and stime are the 14th and 15th.
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    Some(Usage {
        cpu_seconds: ticks as f64 / TICKS_PER_SECOND,
        resident_bytes: kib("VmRSS")? * 1024,
        peak_bytes: kib("VmHWM")? * 1024,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 150 0 0 20 0 5 0 100 1 2";
        let status = "Name:\ta) b (c)\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let usage = Usage { cpu_seconds: 4.0, resident_bytes: 1 << 20, peak_bytes: 2 << 20 };
        assert_eq!(parse(stat, status), Some(usage));
        assert_eq!(parse("7 (a", status), None);
        assert_eq!(parse(stat, "Name:\tzombie\n"), None);
    }

    #[test]
    fn this_very_process_can_be_read() {
        let usage = Process::new(std::process::id()).unwrap().usage().unwrap();
        assert!(usage.peak_bytes >= usage.resident_bytes / 2 && usage.resident_bytes > 0);
        assert!(Process::new(u32::MAX).is_err());
    }
}
