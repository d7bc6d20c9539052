//! What does a worker do? It limits itself, and then answers one question after another until nobody asks any more.
//!
//! It has no network to speak of, opens no file and keeps no secret: whatever a policy does to it, the process that asks
//! ends it and starts another. Should that process be gone, the limit of CPU time ends what runs.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::process::ExitCode;

use nix::sys::resource::{Resource, UsageWho, getrusage, setrlimit};

use crate::DEADLINE;
use crate::condition::Condition;
use crate::program::Program;
use crate::scan::Problem;
use crate::wire::{LENGTH_BYTES, Request, Response, frame, length};
use pawl_machines::remedy::safety::Held;

/// Address space. The largest input is parsed in a tenth of it; a comprehension that needs more is an attack.
pub(crate) const MAX_MEMORY_BYTES: u64 = 512 * 1024 * 1024;

/// The stack of evaluations: ten times what the longest chain of calls needs.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Files: the three standard ones, and what the runtime may want.
const MAX_FILES: u64 = 16;

/// Sets that are kept: the one that holds, the one before, and some on their way.
const MAX_SETS: usize = 4;

/// Conditions that are kept: those of the executions that wait at a time.
const MAX_CONDITIONS: usize = 128;

/// CPU time that one question may take before the kernel ends the worker, in seconds: more than the deadline, which
/// whoever asks looks after; this is for when nobody does.
const CPU_SECS: u64 = DEADLINE.as_secs() + 2;

/// The whole life of a worker process.
pub fn worker_main() -> ExitCode {
    if limit().is_err() {
        return ExitCode::FAILURE;
    }
    let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(|| {
        let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
        serve(&mut input, &mut output)
    });
    match worker.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(()))) => ExitCode::SUCCESS,
        Ok(Ok(Err(_)) | Err(_)) | Err(_) => ExitCode::FAILURE,
    }
}

fn limit() -> nix::Result<()> {
    setrlimit(Resource::RLIMIT_AS, MAX_MEMORY_BYTES, MAX_MEMORY_BYTES)?;
    // What it is killed with is nobody's to read.
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?;
    setrlimit(Resource::RLIMIT_NOFILE, MAX_FILES, MAX_FILES)
}

/// Allows the next question its time.
fn allow_time() -> nix::Result<()> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let used = usage.user_time().tv_sec().saturating_add(usage.system_time().tv_sec());
    let until = u64::try_from(used).unwrap_or_default().saturating_add(CPU_SECS);
    setrlimit(Resource::RLIMIT_CPU, until, nix::libc::RLIM_INFINITY)
}

fn serve(input: &mut impl Read, output: &mut impl Write) -> io::Result<()> {
    let mut kept = Kept::default();
    loop {
        let mut head = [0; LENGTH_BYTES];
        match input.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let mut body = vec![0; length(head).map_err(io::Error::other)?];
        input.read_exact(&mut body)?;
        allow_time()?;
        let request: Request<'_> = serde_json::from_slice(&body)?;
        let response = kept.answer(request);
        output.write_all(&frame(&response).map_err(io::Error::other)?)?;
        output.flush()?;
    }
}

/// What was read once.
#[derive(Default)]
pub(crate) struct Kept {
    /// With the number of their loading: the oldest goes first.
    sets: BTreeMap<String, (u64, Program)>,
    conditions: BTreeMap<String, Result<Condition, Problem>>,
    loaded: u64,
}

impl Kept {
    fn answer(&mut self, request: Request<'_>) -> Response {
        match request {
            Request::Load { digest, modules } => match Program::compile(&modules) {
                Ok(program) => {
                    self.loaded = self.loaded.saturating_add(1);
                    self.sets.insert(digest.into_owned(), (self.loaded, program));
                    if self.sets.len() > MAX_SETS {
                        let oldest = self.sets.iter().min_by_key(|(_, (loaded, _))| *loaded);
                        if let Some(oldest) = oldest.map(|(digest, _)| digest.clone()) {
                            self.sets.remove(&oldest);
                        }
                    }
                    Response::Loaded
                }
                Err(problem) => Response::Rejected(problem),
            },
            Request::Decide { digest, input } => match self.sets.get(digest.as_ref()) {
                Some((_, program)) => Response::Decided(program.decide(&input)),
                None => Response::Unknown,
            },
            Request::Condition { rego, input } => Response::Held(self.holds(&rego, &input)),
        }
    }

    fn holds(&mut self, rego: &str, input: &str) -> Held {
        if !self.conditions.contains_key(rego) {
            if self.conditions.len() >= MAX_CONDITIONS {
                self.conditions.clear();
            }
            self.conditions.insert(rego.to_owned(), Condition::compile(rego));
        }
        match self.conditions.get(rego) {
            Some(Ok(condition)) => condition.holds(input),
            Some(Err(problem)) => Held::Error(problem.to_string()),
            None => Held::Error("it was forgotten".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: &str = "package pawl.safety\ndecision := {\"allow\": input.a == 1}\n";

    fn load(digest: &str) -> Request<'static> {
        Request::Load {
            digest: digest.to_owned().into(),
            modules: vec![("a.rego".to_owned(), ALLOW.to_owned())].into(),
        }
    }

    fn decide(digest: &str) -> Request<'static> {
        Request::Decide { digest: digest.to_owned().into(), input: r#"{"a": 1}"#.into() }
    }

    #[test]
    fn a_worker_answers_frame_by_frame_until_nobody_asks() {
        let mut input = frame(&load("d")).unwrap();
        input.extend(frame(&decide("d")).unwrap());
        input.extend(frame(&decide("other")).unwrap());
        let mut output = Vec::new();
        serve(&mut input.as_slice(), &mut output).unwrap();
        let mut said = Vec::new();
        let mut rest = output.as_slice();
        while let Some((head, body)) = rest.split_first_chunk::<LENGTH_BYTES>() {
            let (one, more) = body.split_at(length(*head).unwrap());
            said.push(serde_json::from_slice::<Response>(one).unwrap());
            rest = more;
        }
        let [Response::Loaded, Response::Decided(Ok(decision)), Response::Unknown] = said.as_slice() else {
            panic!("{said:?}")
        };
        assert!(decision.allow);
    }

    #[test]
    fn old_sets_make_room_for_new_ones() {
        let mut kept = Kept::default();
        for n in 0..=MAX_SETS {
            kept.answer(load(&n.to_string()));
        }
        assert!(matches!(kept.answer(decide("0")), Response::Unknown));
        assert!(matches!(kept.answer(decide("1")), Response::Decided(Ok(_))));
    }
}
