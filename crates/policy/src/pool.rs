//! Who asks the workers, and ends them?
//!
//! ```text
//! a question ─▶ a free worker, or a new one (few at a time; the others wait) ─▶ has it the set? else it is given it
//!            ─▶ answered in time: the worker is kept warm
//!            ─▶ too late, dead, or nobody waits any more: it is killed, and the next question starts another
//! ```
//! One question is with one worker at a time, so what is killed is the culprit and nobody else. Policies and conditions
//! have workers of their own: whoever may write an execution must not keep policy from answering.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use pawl_machines::remedy::safety::{Decision, Held, Policies};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Semaphore;

use crate::evaluator::{Evaluator, Trouble};
use crate::wire::{LENGTH_BYTES, Request, Response, frame, length};
use crate::worker::MAX_MEMORY_BYTES;
use crate::{DEADLINE, WORKER};

/// Workers of each kind at a time: one that is held up by something hostile leaves another.
const MAX_WORKERS: usize = 2;

/// How much of its last words is read.
const MAX_WORDS_BYTES: u64 = 4096;

/// How long its last words are waited for: it is dead.
const WORDS_LIMIT: Duration = Duration::from_secs(1);

/// The workers of this process.
#[derive(Debug)]
pub struct Workers {
    policies: Pool,
    conditions: Pool,
}

impl Workers {
    /// Workers that are this very executable.
    ///
    /// # Errors
    /// When it cannot be told which one that is.
    pub fn own() -> std::io::Result<Self> {
        Ok(Self::of(std::env::current_exe()?, vec![WORKER.into()]))
    }

    /// Workers that are started so.
    pub fn of(program: PathBuf, arguments: Vec<OsString>) -> Self {
        Self {
            policies: Pool::new(program.clone(), arguments.clone()),
            conditions: Pool::new(program, arguments),
        }
    }

    /// With another deadline.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        (self.policies.deadline, self.conditions.deadline) = (deadline, deadline);
        self
    }
}

impl Evaluator for Workers {
    fn decide<'a>(
        &'a self,
        set: &'a Policies,
        input: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Result<Decision, String>, Trouble>> {
        Box::pin(async move {
            let mut lease = self.policies.lease().await?;
            let worker = &mut lease.worker;
            if !worker.loaded.contains(&set.digest) {
                worker.load(set).await?;
            }
            let Some(input) = input else {
                lease.keep();
                return Ok(Ok(Decision::default()));
            };
            let ask = Request::Decide { digest: set.digest.as_str().into(), input: input.into() };
            let mut response = worker.ask(&ask).await?;
            if matches!(response, Response::Unknown) {
                // It made room for others meanwhile.
                worker.load(set).await?;
                response = worker.ask(&ask).await?;
            }
            let Response::Decided(decided) = response else { return Err(strange(&response)) };
            lease.keep();
            Ok(decided)
        })
    }

    fn holds<'a>(&'a self, rego: &'a str, input: &'a str) -> BoxFuture<'a, Result<Held, Trouble>> {
        Box::pin(async move {
            let mut lease = self.conditions.lease().await?;
            let ask = Request::Condition { rego: rego.into(), input: input.into() };
            let response = lease.worker.ask(&ask).await?;
            let Response::Held(held) = response else { return Err(strange(&response)) };
            lease.keep();
            Ok(held)
        })
    }
}

fn strange(response: &Response) -> Trouble {
    Trouble::Lost(format!("the worker answered something else: {response:?}"))
}

#[derive(Debug)]
struct Pool {
    program: PathBuf,
    arguments: Vec<OsString>,
    free: Mutex<Vec<Worker>>,
    turns: Semaphore,
    deadline: Duration,
}

/// A worker for one question. Unless it is kept, it is killed.
struct Lease<'a> {
    worker: Worker,
    pool: &'a Pool,
    _turn: tokio::sync::SemaphorePermit<'a>,
}

impl Lease<'_> {
    fn keep(self) {
        self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.worker);
    }
}

impl Pool {
    fn new(program: PathBuf, arguments: Vec<OsString>) -> Self {
        Self {
            program,
            arguments,
            free: Mutex::default(),
            turns: Semaphore::new(MAX_WORKERS),
            deadline: DEADLINE,
        }
    }

    async fn lease(&self) -> Result<Lease<'_>, Trouble> {
        let turn = self.turns.acquire().await.map_err(|closed| Trouble::Lost(closed.to_string()))?;
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // One that died meanwhile (somebody killed it) is not asked.
        let alive = free.and_then(|mut worker| worker.is_alive().then_some(worker));
        let worker = match alive {
            Some(worker) => worker,
            None => self.start()?,
        };
        Ok(Lease { worker, pool: self, _turn: turn })
    }

    fn start(&self) -> Result<Worker, Trouble> {
        let lost = |error: std::io::Error| Trouble::Lost(format!("a worker could not be started: {error}"));
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            // What this process was given is none of a policy's business.
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(lost)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => {
                Ok(Worker { child, input, output, loaded: BTreeSet::new(), deadline: self.deadline })
            }
            _ => Err(Trouble::Lost("a worker has no pipes".to_owned())),
        }
    }
}

#[derive(Debug)]
struct Worker {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// Digests of the sets it was given.
    loaded: BTreeSet<String>,
    deadline: Duration,
}

impl Worker {
    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    async fn load(&mut self, set: &Policies) -> Result<(), Trouble> {
        let load = Request::Load { digest: set.digest.as_str().into(), modules: set.modules.as_ref().into() };
        match self.ask(&load).await? {
            Response::Loaded => {
                self.loaded.insert(set.digest.clone());
                Ok(())
            }
            Response::Rejected(problem) => Err(Trouble::Rejected(problem)),
            other @ (Response::Unknown | Response::Decided(_) | Response::Held(_)) => Err(strange(&other)),
        }
    }

    /// One question, within the deadline.
    async fn ask(&mut self, request: &Request<'_>) -> Result<Response, Trouble> {
        let bytes = frame(request).map_err(Trouble::Stopped)?;
        match tokio::time::timeout(self.deadline, self.exchange(&bytes)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(_)) => Err(Trouble::Stopped(self.last_words().await)),
            Err(_) => {
                let _ = self.child.start_kill();
                Err(Trouble::Stopped(format!("evaluation took longer than {:?}", self.deadline)))
            }
        }
    }

    async fn exchange(&mut self, bytes: &[u8]) -> std::io::Result<Response> {
        self.input.write_all(bytes).await?;
        let mut head = [0; LENGTH_BYTES];
        self.output.read_exact(&mut head).await?;
        let mut body = vec![0; length(head).map_err(std::io::Error::other)?];
        self.output.read_exact(&mut body).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Why it died, as well as can be told.
    async fn last_words(&mut self) -> String {
        let mut words = Vec::new();
        if let Some(said) = self.child.stderr.take() {
            let mut said = said.take(MAX_WORDS_BYTES);
            let _ = tokio::time::timeout(WORDS_LIMIT, said.read_to_end(&mut words)).await;
        }
        let words = String::from_utf8_lossy(&words);
        if words.contains("overflowed its stack") {
            return "evaluation was stopped: it calls itself without end, or is nested too deeply".to_owned();
        }
        if words.contains("memory allocation") || words.contains("capacity overflow") {
            return format!(
                "evaluation was stopped: it needs more than {} MiB",
                MAX_MEMORY_BYTES / (1024 * 1024)
            );
        }
        let ended = tokio::time::timeout(WORDS_LIMIT, self.child.wait()).await;
        let how = ended
            .ok()
            .and_then(Result::ok)
            .map_or_else(|| "no status".to_owned(), |status| status.to_string());
        format!("evaluation was stopped: the worker ended ({how})")
    }
}
