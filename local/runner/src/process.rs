//! How is a container's process started, and how does the runner hear of its end?

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::isolate::{ContainerSpec, exit_code};
use crate::logs::{self, Channel, Writer};
use crate::records::Process;

/// Namespaces and mounts take milliseconds; a machine that needs this long is stuck.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// What could not be started says why in a sentence.
const MAX_COMPLAINT_BYTES: u64 = 4096;
/// After the process ended, its descendants may hold its output open; so long is waited for them to finish writing.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts processes, all from one thread that lives as long as this does: a container asks the kernel to be killed
/// when its parent *thread* ends, and a runtime's threads come and go.
#[derive(Clone, Debug)]
pub(crate) struct Spawner {
    requests: mpsc::UnboundedSender<(Command, oneshot::Sender<io::Result<Child>>)>,
    executable: PathBuf,
    arguments: Vec<OsString>,
}

/// A container that runs.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) handle: Handle,
    child: Child,
    outputs: Vec<JoinHandle<()>>,
    /// Where no pid namespace ends what the command leaves behind, this does.
    sweep: Option<Process>,
}

/// Signals a container while another waits for its end.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) pid: i32,
    ended: Arc<AtomicBool>,
}

impl Handle {
    /// Signals the process and those beside it.
    pub(crate) fn signal(&self, signal: Signal) {
        if !self.ended.load(Ordering::Acquire) {
            // It leads a session of its own, so its group's number is its own. Gone already: fine.
            let _ = killpg(Pid::from_raw(self.pid), signal);
        }
    }
}

/// Why a container does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("failed to create the container's process: {0}")]
    Spawn(#[from] io::Error),
    /// The container's side says so.
    #[error("failed to start the container: {0}")]
    Refused(String),
    #[error("failed to start the container: not ready within {} s", START_TIMEOUT.as_secs())]
    Timeout,
}

impl Spawner {
    /// Must be called within a runtime.
    pub(crate) fn new(executable: PathBuf, arguments: Vec<OsString>) -> io::Result<Self> {
        let (requests, mut inbox) =
            mpsc::unbounded_channel::<(Command, oneshot::Sender<io::Result<Child>>)>();
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new().name("pawl-spawner".to_owned()).spawn(move || {
            let _in_runtime = runtime.enter();
            while let Some((mut command, answer)) = inbox.blocking_recv() {
                // Whoever asked may have gone; the child then dies with the answer.
                drop(answer.send(command.spawn()));
            }
        })?;
        Ok(Self { requests, executable, arguments })
    }

    /// Starts a container; when this returns well, its command runs.
    pub(crate) async fn start(&self, spec: &ContainerSpec, writer: Writer) -> Result<Container, Error> {
        let (mut ours, theirs) = UnixStream::pair()?;
        let theirs = OwnedFd::from(theirs.into_std()?);
        // The container's side reads it as a plain file.
        set_blocking(&theirs)?;
        let mut command = Command::new(&self.executable);
        command.args(&self.arguments).env_clear().kill_on_drop(true);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (answer, spawned) = oneshot::channel();
        let gone = || io::Error::other("the spawner has stopped");
        self.requests.send((command, answer)).map_err(|_| gone())?;
        let mut child = spawned.await.map_err(|_| gone())??;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).ok_or_else(gone)?;
        let writer = Arc::new(Mutex::new(writer));
        let stdout =
            child.stdout.take().map(|out| tokio::spawn(logs::copy(Channel::Stdout, out, writer.clone())));
        let stderr = child.stderr.take().map(|out| tokio::spawn(logs::copy(Channel::Stderr, out, writer)));
        let mut container = Container {
            handle: Handle { pid, ended: Arc::default() },
            child,
            outputs: stdout.into_iter().chain(stderr).collect(),
            sweep: if spec.isolation.pid { None } else { Process::of(pid) },
        };
        let complaint = match tokio::time::timeout(START_TIMEOUT, converse(&mut ours, spec)).await {
            Ok(complaint) => complaint,
            Err(_) => {
                container.handle.signal(Signal::SIGKILL);
                return Err(Error::Timeout);
            }
        };
        match complaint {
            Ok(text) if text.is_empty() => Ok(container),
            Ok(text) => {
                container.wait().await;
                Err(Error::Refused(text))
            }
            Err(error) => Err(Error::Spawn(error)),
        }
    }
}

impl Container {
    /// Waits for the end; the exit code, when all output is in the log.
    pub(crate) async fn wait(&mut self) -> u8 {
        let code = match self.child.wait().await {
            Ok(status) => exit_code(status),
            Err(error) => {
                tracing::error!(%error, pid = self.handle.pid, "a container's end cannot be seen");
                crate::isolate::CANNOT_START
            }
        };
        self.handle.ended.store(true, Ordering::Release);
        self.sweep.map(Process::kill_session);
        for output in self.outputs.drain(..) {
            let abort = output.abort_handle();
            if tokio::time::timeout(DRAIN_TIMEOUT, output).await.is_err() {
                abort.abort();
            }
        }
        code
    }
}

/// Tells the container what to be, and hears what stands in the way.
async fn converse(socket: &mut UnixStream, spec: &ContainerSpec) -> io::Result<String> {
    let told = async {
        socket.write_all(&serde_json::to_vec(spec)?).await?;
        socket.shutdown().await
    };
    let told = told.await;
    let mut complaint = String::new();
    let heard = socket.take(MAX_COMPLAINT_BYTES).read_to_string(&mut complaint).await;
    // A complaint explains best why it stopped listening.
    if complaint.is_empty() {
        told?;
        heard?;
    }
    Ok(complaint)
}

fn set_blocking(fd: &OwnedFd) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(fd, FcntlArg::F_SETFL(OFlag::empty())).map(drop).map_err(io::Error::from)
}
