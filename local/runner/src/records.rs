//! What ran when Pawl last stopped, and is any of it still there?
//!
//! Before a container starts, a record of it is on disk; its process and its end are added. So a start after a crash
//! knows what was begun even where no status was written: nothing runs twice because Pawl died in between (I2), and
//! no process is left behind. A process is known by its number *and* its start time: numbers are used again.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::life::{Exit, Life, State};

/// What the status says about a container that Pawl did not see end.
pub const LOST_MESSAGE: &str = "pawl stopped while it ran";
/// Killed, as far as anybody knows.
pub const LOST_CODE: i32 = 137;

/// The last start of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) image_id: String,
    pub(crate) restarts: u32,
    pub(crate) ends_in_row: u32,
    pub(crate) started_at: Timestamp,
    pub(crate) process: Option<Process>,
    /// The engine's container of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) container: Option<String>,
    pub(crate) exit: Option<Exit>,
}

/// A process that cannot be mistaken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Clock ticks since boot, from `/proc`.
    pub(crate) started_ticks: u64,
}

impl Process {
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        Some(Self { pid, started_ticks: stat.started_ticks })
    }

    /// Kills every process of the session that this process led, unless its number means another one by now.
    pub(crate) fn kill_session(self) -> usize {
        let leader_is_other =
            Stat::read(self.pid).is_some_and(|stat| stat.started_ticks != self.started_ticks);
        if leader_is_other {
            return 0;
        }
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let ours = pids.filter(|pid| {
            Stat::read(*pid).is_some_and(|s| s.session == self.pid && s.started_ticks >= self.started_ticks)
        });
        ours.filter(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL).is_ok()).count()
    }
}

/// The records of one pod.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    pub(crate) directory: PathBuf,
}

impl Records {
    pub(crate) fn read(&self, container: &str) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.path(container)).ok()?).ok()
    }

    /// On disk when this returns, whole or not at all.
    pub(crate) fn write(&self, container: &str, record: &Record) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let draft = self.directory.join(format!(".{container}.new"));
        let mut file = fs::File::create(&draft)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_data()?;
        fs::rename(draft, self.path(container))
    }

    /// All that the last life left running is killed; how many processes that were.
    pub(crate) fn kill_leftovers(&self) -> usize {
        self.not_ended().filter_map(|record| record.process).map(Process::kill_session).sum()
    }

    /// Containers of an engine that nobody has seen end.
    pub(crate) fn left_to_an_engine(&self) -> Vec<String> {
        self.not_ended().filter_map(|record| record.container).collect()
    }

    fn not_ended(&self) -> impl Iterator<Item = Record> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let names = entries.filter_map(|e| Some(e.file_name().to_str()?.strip_suffix(".json")?.to_owned()));
        names.filter_map(|name| self.read(&name)).filter(|record| record.exit.is_none())
    }

    /// Puts what is known of earlier starts into a pod's life: from the records, which are nearest to the truth, else
    /// from its status.
    pub(crate) fn restore(&self, pod: &Pod, life: &mut Life, now: Timestamp) {
        for container in &mut life.containers {
            let Some(record) = self.read(&container.name).or_else(|| from_status(pod, &container.name))
            else {
                continue;
            };
            container.image_id.clone_from(&record.image_id);
            container.restarts = record.restarts;
            container.ends_in_row = record.ends_in_row;
            let lost = || Exit {
                code: LOST_CODE,
                reason: "Error".to_owned(),
                message: Some(LOST_MESSAGE.to_owned()),
                started_at: Some(record.started_at),
                finished_at: now,
                id: record.id.clone(),
            };
            container.state = State::Exited(record.exit.clone().unwrap_or_else(lost));
        }
    }

    fn path(&self, container: &str) -> PathBuf {
        self.directory.join(format!("{container}.json"))
    }
}

/// What a status tells of a container's last start, where the record of it is gone.
fn from_status(pod: &Pod, container: &str) -> Option<Record> {
    let status = pod.status.as_ref()?;
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let found = lists.into_iter().flatten().flatten().find(|status| status.name == container)?;
    let state = found.state.as_ref()?;
    let id = found.container_id.clone().unwrap_or_default();
    let restarts = u32::try_from(found.restart_count).unwrap_or(0);
    let record = |started_at: Option<&Time>, exit| Record {
        id: id.clone(),
        image_id: found.image_id.clone(),
        restarts,
        ends_in_row: restarts,
        started_at: started_at.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        process: None,
        container: None,
        exit,
    };
    if let Some(running) = &state.running {
        return Some(record(running.started_at.as_ref(), None));
    }
    let last = found.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let ended = state.terminated.as_ref().or(last)?;
    let exit = Exit {
        code: ended.exit_code,
        reason: ended.reason.clone().unwrap_or_default(),
        message: ended.message.clone(),
        started_at: ended.started_at.as_ref().map(|time| time.0),
        finished_at: ended.finished_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        id: id.clone(),
    };
    Some(record(ended.started_at.as_ref(), Some(exit)))
}

/// What has a directory here.
pub(crate) fn names(pods: &Path) -> Vec<String> {
    let entries = fs::read_dir(pods).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str().map(str::to_owned)).collect()
}

/// What `/proc/<pid>/stat` tells.
struct Stat {
    session: i32,
    started_ticks: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, field 2, may hold anything; what follows its last parenthesis is fields 3 and on.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self { session: fields.get(3)?.parse().ok()?, started_ticks: fields.get(19)?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::Timing;
    use serde_json::json;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    fn record(exit: Option<Exit>) -> Record {
        let started_at = Timestamp::UNIX_EPOCH;
        Record {
            id: "pawl://x".into(),
            image_id: "i".into(),
            restarts: 2,
            ends_in_row: 3,
            started_at,
            process: None,
            container: None,
            exit,
        }
    }

    #[test]
    fn what_was_begun_and_not_seen_to_end_is_lost_and_not_run_again() {
        let home = tempfile::tempdir().unwrap();
        let records = Records { directory: home.path().join("records") };
        let spec =
            json!({"restartPolicy": "Never", "containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]});
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        let now = Timestamp::from_second(100).unwrap();
        let ended = Exit {
            code: 0,
            reason: "Completed".into(),
            message: None,
            started_at: None,
            finished_at: now,
            id: "pawl://b".into(),
        };
        records.write("a", &record(None)).unwrap();
        records.write("b", &record(Some(ended.clone()))).unwrap();
        let mut life = Life::new(&pod, Timing::default(), now);
        records.restore(&pod, &mut life, now);
        let State::Exited(lost) = &life.containers[0].state else { panic!("a began and was lost") };
        assert_eq!((lost.code, lost.message.as_deref()), (LOST_CODE, Some(LOST_MESSAGE)));
        assert_eq!(life.containers[0].restarts, 2);
        assert_eq!(life.containers[1].state, State::Exited(ended));
        assert_eq!(life.next(now).steps, [crate::life::Step::Start(2)]);
    }

    #[test]
    fn a_leftover_is_killed_and_a_stranger_with_its_number_is_not() {
        let mut child =
            Command::new("sleep").arg("600").stdin(Stdio::null()).process_group(0).spawn().unwrap();
        let pid = child.id().cast_signed();
        let process = Process::of(pid).unwrap();
        let stranger = Process { started_ticks: process.started_ticks + 1, ..process };
        assert_eq!(stranger.kill_session(), 0);
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(process.kill_session(), 0);
    }
}
