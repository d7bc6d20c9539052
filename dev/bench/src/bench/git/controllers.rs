//! What runs in the child, and what has it done so far?
//!
//! The child is this executable: what `pawl up` runs, or the controllers alone, with the same loop, machines and ports as
//! `pawl up` and `pawl operator`, without an election, for there is nobody else. Those end when their standard input does,
//! so they never outlive their parent.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use pawl_cli::ports::Ports;
use pawl_cli::terminal::Say;
use pawl_cli::{cluster, doors, logging, loopback};
use pawl_engine::{Engine, health};
use pawl_integrations::transport;
use pawl_machines::deploy::deploy_item::OWN_IMAGE;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use super::super::process::{Process, Usage};
use super::stage::SYSTEM;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    kubeconfig: PathBuf,
    #[command(flatten)]
    logging: logging::Choices,
}

/// What the child does: runs until nobody holds the other end of its standard input.
pub(crate) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    logging::start(&args.logging, "warn")?;
    let client = cluster::for_controllers(Some(&args.kubeconfig)).await?;
    let ports = Ports::new(&client, transport::https()?);
    let engine = Engine::builder(client)
        .machines(doors::machines(SYSTEM, OWN_IMAGE, &doors::Choices::default()))
        .ports(ports.registered.clone())
        .build()?;
    ports.measure(engine.metrics());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let until_stopped = |mut stopping: tokio::sync::watch::Receiver<bool>| async move {
        // An error means that whoever would say so is gone: the same.
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    // A thread, because reading standard input cannot be cancelled; it ends with the process.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = stop.send(true);
    });
    let served = tokio::spawn(health::serve(listener, engine.clone(), until_stopped(stopping.clone())));
    let looped = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(until_stopped(stopping)).await }
    });
    engine.ready().await;
    say.line(&address.to_string());
    looped.await?;
    served.await??;
    Ok(())
}

/// Names a command with its arguments, under which children are started: a profiler's, say.
const UNDER: &str = "PAWL_BENCH_UNDER";

fn under<'a>(mut words: impl Iterator<Item = &'a str>, program: &Path) -> Command {
    let Some(first) = words.next() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(words).arg(program);
    command
}

/// The child, seen from its parent.
#[derive(Debug)]
pub(in crate::bench) struct Controllers {
    child: Child,
    process: Process,
    address: String,
}

/// What the controllers have done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::bench) struct Done {
    /// Requests that plans have made, by who made them, how, and what came of it.
    pub(in crate::bench) requests: BTreeMap<(String, String, String), u64>,
    /// Looks at objects, by who looked and what came of it.
    pub(in crate::bench) looks: BTreeMap<(String, String), u64>,
}

impl Controllers {
    /// Starts the child and waits until it has seen everything.
    pub(in crate::bench) async fn start(kubeconfig: &Path) -> anyhow::Result<Self> {
        let flags = ["bench", "controllers", "--kubeconfig"].map(OsStr::new);
        Self::spawn(flags.into_iter().chain([kubeconfig.as_os_str()]), |line| Some(line)).await
    }

    /// Starts what `pawl up` runs, with its data in a directory of ours.
    pub(in crate::bench) async fn up(directory: &Path) -> anyhow::Result<Self> {
        let flags = ["bench", "up", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--data-dir"]
            .map(OsStr::new);
        Self::spawn(flags.into_iter().chain([directory.as_os_str()]), |line| {
            line.trim().strip_prefix("metrics")?.trim().strip_prefix("http://")?.strip_suffix("/metrics")
        })
        .await
    }

    /// Starts the child and waits until it says where its counters are.
    async fn spawn<'a>(
        flags: impl IntoIterator<Item = &'a OsStr>,
        address_in: fn(&str) -> Option<&str>,
    ) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("find this executable")?;
        let mut child = under(std::env::var(UNDER).unwrap_or_default().split_ascii_whitespace(), &own)
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start the controllers")?;
        let pid = child.id().context("the controllers ended at once")?;
        let mut lines =
            BufReader::new(child.stdout.take().context("the controllers have no output")?).lines();
        while let Some(line) = lines.next_line().await? {
            let Some(address) = address_in(&line).map(|address| address.trim().to_owned()) else { continue };
            // Nobody reads on; what the child still says must not fill a pipe.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(Self { process: Process::new(pid)?, child, address });
        }
        bail!("the controllers ended before they were ready: {}", child.wait().await?)
    }

    pub(in crate::bench) fn usage(&self) -> anyhow::Result<Usage> {
        self.process.usage().context("the controllers")
    }

    /// What its own counters say.
    pub(in crate::bench) async fn done(&self) -> anyhow::Result<Done> {
        let answer = loopback::ask(&self.address, "/metrics", None).await.context("the controllers")?;
        Ok(Done::read(&answer))
    }

    /// Ends the child and all it holds: its data go too.
    pub(super) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("end the controllers")
    }

    /// Ends the child as a person would.
    pub(in crate::bench) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait().await?;
        if status.success() { Ok(()) } else { bail!("the controllers ended with {status}") }
    }
}

impl Done {
    fn read(exposition: &str) -> Self {
        let requests = counted(exposition, "pawl_requests_total", ["machine", "method", "code"]);
        let looks = counted(exposition, "pawl_reconciles_total", ["machine", "outcome"]);
        Self {
            requests: requests
                .map(|([machine, method, code], count)| ((machine, method, code), count))
                .collect(),
            looks: looks.map(|([machine, outcome], count)| ((machine, outcome), count)).collect(),
        }
    }

    /// What came after `before`.
    pub(in crate::bench) fn since(&self, before: &Self) -> Self {
        Self { requests: since(&self.requests, &before.requests), looks: since(&self.looks, &before.looks) }
    }

    /// All that asked for a change, whether or not it was made.
    pub(in crate::bench) fn writes(&self) -> u64 {
        self.sum(|method| method != "GET")
    }

    pub(in crate::bench) fn reads(&self) -> u64 {
        self.sum(|method| method == "GET")
    }

    fn sum(&self, which: impl Fn(&str) -> bool) -> u64 {
        self.requests.iter().filter(|((_, method, _), _)| which(method)).map(|(_, count)| count).sum()
    }
}

/// The lines of one counter, with the values of its labels.
fn counted<'a, const N: usize>(
    exposition: &'a str,
    name: &'static str,
    labels: [&'static str; N],
) -> impl Iterator<Item = ([String; N], u64)> + 'a {
    exposition.lines().filter_map(move |line| {
        let (said, count) = line.strip_prefix(name)?.strip_prefix('{')?.split_once("} ")?;
        let value = |label: &str| {
            let quoted = said.split(',').find_map(|pair| pair.strip_prefix(label)?.strip_prefix("=\""))?;
            Some(quoted.strip_suffix('"')?.to_owned())
        };
        let values: Option<Vec<String>> = labels.iter().map(|label| value(label)).collect();
        Some((values?.try_into().ok()?, count.trim().parse().ok()?))
    })
}

fn since<K: Ord + Clone>(after: &BTreeMap<K, u64>, before: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let more = after.iter().map(|(key, count)| (key, count - before.get(key).copied().unwrap_or_default()));
    more.filter(|(_, more)| *more > 0).map(|(key, more)| (key.clone(), more)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_started_alone_or_under_what_is_named() {
        let words = |command: Command| {
            let command = command.into_std();
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(under([].into_iter(), Path::new("/bin/pawl-dev"))), "/bin/pawl-dev");
        assert_eq!(
            words(under(["perf", "record"].into_iter(), Path::new("/bin/pawl-dev"))),
            "perf record /bin/pawl-dev"
        );
    }

    #[test]
    fn requests_are_counted_from_what_prometheus_reads() {
        let text = "# HELP x\npawl_requests_total{machine=\"workflow\",method=\"PATCH\",code=\"200\"} 7\n\
                    pawl_requests_total{machine=\"workflow\",method=\"GET\",code=\"200\"} 3\n\
                    pawl_reconciles_total{machine=\"workflow\",outcome=\"quiet\"} 4\npawl_leader 1\n";
        let done = Done::read(text);
        assert_eq!((done.writes(), done.reads()), (7, 3));
        assert_eq!(done.looks.get(&("workflow".to_owned(), "quiet".to_owned())), Some(&4));
        let later = Done::read(&text.replace("} 7", "} 9"));
        assert_eq!((later.since(&done).writes(), later.since(&done).reads()), (2, 0));
    }
}
