//! What becomes of a container that has ended?

use jiff::Timestamp;

use super::{Control, Running, Worker};
use crate::events::Note;
use crate::isolate::CANNOT_START;
use crate::life::{ContainerLife, Exit, State};
use crate::records::{LOST_CODE, LOST_MESSAGE, Record};
use crate::status;

/// How a container ended, as far as whoever ran it can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exited {
        code: u8,
        /// For want of memory.
        oom_killed: bool,
        /// `None`: just now.
        finished_at: Option<Timestamp>,
    },
    /// It never ran.
    CannotStart(String),
    /// Nobody saw it end.
    Lost,
}

/// A container ended.
pub(super) struct Ended {
    pub(super) index: usize,
    pub(super) end: End,
}

impl Worker {
    pub(super) async fn container_ended(&mut self, ended: Ended) {
        let Ended { index, end } = ended;
        let Some(running) = self.running.remove(&index) else { return };
        let Some(name) = self.life.containers.get(index).map(|container| container.name.clone()) else {
            return;
        };
        let exit = self.exit(index, &name, &running, end).await;
        self.ended(index, exit);
        self.let_go(running.control);
        let again = self.life.containers.get(index).filter(|c| self.will_run_again(c));
        if again.is_some() {
            self.shared.logs.run_is_over(&self.uid, &name);
        }
        if again.is_some_and(|container| !self.life.back_off(container).is_zero()) {
            let pod = status::full_name(&self.pod);
            let message = format!("Back-off restarting failed container {name} in pod {pod}");
            self.note(Note::warning("BackOff", message)).await;
        }
    }

    /// What the status will say.
    async fn exit(&self, index: usize, name: &str, running: &Running, end: End) -> Exit {
        let started_at = self.records.read(name).map(|record| record.started_at);
        let (code, reason, message, finished_at) = match end {
            End::Exited { code, oom_killed, finished_at } => {
                let (code, message) = match self.report(name, running, code).await {
                    Some((code, message)) => (code, message),
                    None => (code, self.last_words(name, running, code).await),
                };
                let reason = match code {
                    0 => "Completed",
                    _ if oom_killed => "OOMKilled",
                    _ => "Error",
                };
                (i32::from(code), reason, message, finished_at)
            }
            End::CannotStart(message) => (i32::from(CANNOT_START), "StartError", Some(message), None),
            End::Lost => (LOST_CODE, "Error", Some(LOST_MESSAGE.to_owned()), None),
        };
        Exit {
            code,
            reason: reason.to_owned(),
            message,
            started_at,
            finished_at: finished_at.unwrap_or_else(|| self.shared.now()),
            id: self.id(index),
        }
    }

    pub(super) fn will_run_again(&self, container: &ContainerLife) -> bool {
        match &container.state {
            State::Exited(exit) => self.life.again(container, exit),
            State::Running { .. } | State::Waiting { .. } => false,
        }
    }

    /// A container's end goes to disk before it goes anywhere else.
    pub(super) fn ended(&mut self, index: usize, exit: Exit) {
        self.life.exited(index, exit.clone());
        let Some(container) = self.life.containers.get(index) else { return };
        let record = Record {
            id: exit.id.clone(),
            image_id: container.image_id.clone(),
            restarts: container.restarts,
            ends_in_row: container.ends_in_row,
            started_at: exit.started_at.unwrap_or(exit.finished_at),
            process: None,
            container: None,
            exit: Some(exit),
        };
        if let Err(error) = self.records.write(&container.name, &record) {
            tracing::error!(%error, container = container.name, "the end of a container cannot be recorded");
        }
    }

    /// An engine keeps what has ended until it is told otherwise: not before its end is on our disk.
    fn let_go(&mut self, control: Control) {
        match control {
            Control::Process(_) => {}
            Control::Engine(handle) => self.remove_from(&handle.engine, handle.name),
        }
    }
}
