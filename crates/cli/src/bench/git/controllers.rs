//! What runs in the child, and what has it done so far?
//!
//! The child is this executable: the same loop, machines and ports as `pawl up` and `pawl operator`, without an election,
//! for there is nobody else. It ends when its standard input does, so it never outlives its parent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use pawl_engine::{Engine, Outside, health};
use pawl_integrations::github::transport;
use pawl_machines::deploy::deploy_item::OWN_IMAGE;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use super::super::process::{Process, Usage};
use super::stage::SYSTEM;
use crate::ports::Ports;
use crate::terminal::Say;
use crate::{cluster, doors, logging, loopback};

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
    let ports = Arc::new(Ports::new(&client, transport::https()?));
    let engine = Engine::builder(client)
        .machines(doors::machines(SYSTEM, OWN_IMAGE, &doors::Choices::default()))
        .outside(Arc::clone(&ports) as Arc<dyn Outside>)
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

/// The child, seen from its parent.
#[derive(Debug)]
pub(in crate::bench) struct Controllers {
    child: Child,
    process: Process,
    address: String,
}

/// Requests that plans have made, by who made them, how, and what came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::bench) struct Done(pub(in crate::bench) BTreeMap<(String, String, String), u64>);

impl Controllers {
    /// Starts the child and waits until it has seen everything.
    pub(in crate::bench) async fn start(kubeconfig: &Path) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("find this executable")?;
        let mut child = Command::new(own)
            .args(["bench", "controllers", "--kubeconfig"])
            .arg(kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start the controllers")?;
        let pid = child.id().context("the controllers ended at once")?;
        let output = child.stdout.take().context("the controllers have no output")?;
        let mut address = String::new();
        BufReader::new(output).read_line(&mut address).await?;
        if address.trim().is_empty() {
            bail!("the controllers ended before they were ready: {}", child.wait().await?);
        }
        Ok(Self { process: Process::new(pid)?, child, address: address.trim().to_owned() })
    }

    pub(in crate::bench) fn usage(&self) -> anyhow::Result<Usage> {
        self.process.usage().context("the controllers")
    }

    /// What its own counters say.
    pub(in crate::bench) async fn done(&self) -> anyhow::Result<Done> {
        let answer = loopback::ask(&self.address, "/metrics", None).await.context("the controllers")?;
        Ok(Done::read(&answer))
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
        let counted = exposition.lines().filter_map(|line| {
            let (labels, count) = line.strip_prefix("pawl_requests_total{")?.split_once("} ")?;
            let value = |name: &str| {
                let quoted =
                    labels.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\""))?;
                Some(quoted.strip_suffix('"')?.to_owned())
            };
            Some(((value("machine")?, value("method")?, value("code")?), count.trim().parse().ok()?))
        });
        Self(counted.collect())
    }

    /// What came after `before`.
    pub(in crate::bench) fn since(&self, before: &Self) -> Self {
        let since = |(key, count): (&(String, String, String), &u64)| {
            let more = count - before.0.get(key).copied().unwrap_or_default();
            (more > 0).then(|| (key.clone(), more))
        };
        Self(self.0.iter().filter_map(since).collect())
    }

    /// All that asked for a change, whether or not it was made.
    pub(in crate::bench) fn writes(&self) -> u64 {
        self.sum(|method| method != "GET")
    }

    pub(in crate::bench) fn reads(&self) -> u64 {
        self.sum(|method| method == "GET")
    }

    fn sum(&self, which: impl Fn(&str) -> bool) -> u64 {
        self.0.iter().filter(|((_, method, _), _)| which(method)).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_from_what_prometheus_reads() {
        let text = "# HELP x\npawl_requests_total{machine=\"workflow\",method=\"PATCH\",code=\"200\"} 7\n\
                    pawl_requests_total{machine=\"workflow\",method=\"GET\",code=\"200\"} 3\npawl_leader 1\n";
        let done = Done::read(text);
        assert_eq!((done.writes(), done.reads()), (7, 3));
        let later = Done::read(&text.replace("} 7", "} 9"));
        assert_eq!((later.since(&done).writes(), later.since(&done).reads()), (2, 0));
    }
}
