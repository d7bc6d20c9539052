//! How fast does policy answer, here and in a worker?
//!
//! The built-in policy over an input of an ordinary size: first in this process, on one thread, as the controllers ask
//! it; then the same text as if a user had brought it, in worker processes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use pawl_cli::terminal::Say;
use pawl_machines::remedy::safety::Policies;
use pawl_policy::{BUILT_IN, Port, Workers};
use serde_json::{Value, json};

use super::report::Latency;

/// Asked before anything is measured: interpreters and workers are warm then, as they are after the first minute.
const WARM_UP: usize = 200;

/// What the project promises: a millisecond for each, ten thousand in a second.
const MAX_MICROS: f64 = 1000.0;
const MIN_PER_SECOND: f64 = 10_000.0;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How many evaluations, here and in workers.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    count: u32,
    /// How many ask the workers at a time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    askers: u8,
    /// For programs.
    #[arg(long)]
    json: bool,
}

/// What was measured in one place.
struct Measured {
    latency: Latency,
    micros: f64,
    per_second: f64,
}

pub(super) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    let input = input().to_string();
    let port = Arc::new(Port::new(Arc::new(Workers::own()?)));
    let here = here(&port, &input, args.count).await?;
    let workers = in_workers(&port, &input, args).await?;
    if args.json {
        let of = |it: &Measured| {
            json!({"microsPerEvaluation": it.micros, "evaluationsPerSecond": it.per_second,
                "p50Micros": micros(it.latency.p50), "p99Micros": micros(it.latency.p99)})
        };
        let shown = json!({
            "inputBytes": input.len(), "count": args.count, "inProcess": of(&here),
            "worker": of(&workers), "askers": args.askers,
            "budget": {"microsPerEvaluation": MAX_MICROS, "evaluationsPerSecond": MIN_PER_SECOND,
                "held": here.micros <= MAX_MICROS && here.per_second >= MIN_PER_SECOND},
        });
        say.line(&shown.to_string());
        return Ok(());
    }
    say.line(&format!("policy: built-in, input of {} bytes, {} evaluations", input.len(), args.count));
    for (name, it) in [("here, one thread", &here), ("in workers", &workers)] {
        say.line(&format!(
            "{name:<17} {:>8.0} evaluations/s, {:>6.1} µs each; p50 {:.0} µs, p99 {:.0} µs",
            it.per_second,
            it.micros,
            micros(it.latency.p50),
            micros(it.latency.p99)
        ));
    }
    say.line(&format!(
        "budget            {MIN_PER_SECOND:>8.0} evaluations/s, {MAX_MICROS:>6.0} µs each, here"
    ));
    Ok(())
}

async fn here(port: &Port, input: &str, count: u32) -> anyhow::Result<Measured> {
    let mut took = Vec::new();
    let none = Policies::default();
    for _ in 0..WARM_UP {
        port.safety(&none, input).await?;
    }
    let begun = Instant::now();
    for _ in 0..count {
        let started = Instant::now();
        let verdict = port.safety(&none, input).await?;
        took.push(started.elapsed());
        ensure!(verdict.decision.is_ok_and(|decision| decision.allow), "the input is not allowed");
    }
    let all = begun.elapsed().as_secs_f64();
    Ok(Measured {
        latency: Latency::of(took),
        micros: all * 1e6 / f64::from(count),
        per_second: f64::from(count) / all,
    })
}

async fn in_workers(port: &Arc<Port>, input: &str, args: &Args) -> anyhow::Result<Measured> {
    let (name, text) = BUILT_IN;
    let brought = Policies::of(vec![(name.to_owned(), text.to_owned())]);
    for _ in 0..WARM_UP {
        port.safety(&brought, input).await?;
    }
    let each = args.count / u32::from(args.askers);
    let begun = Instant::now();
    let askers: Vec<_> = (0..args.askers)
        .map(|_| {
            let (port, brought, input) = (Arc::clone(port), brought.clone(), input.to_owned());
            tokio::spawn(async move {
                let mut took = Vec::new();
                for _ in 0..each {
                    let started = Instant::now();
                    let verdict = port.safety(&brought, &input).await?;
                    took.push(started.elapsed());
                    verdict.decision.map_err(|problem| anyhow!("in a worker: {problem}"))?;
                }
                anyhow::Ok(took)
            })
        })
        .collect();
    let mut took = Vec::new();
    for asker in askers {
        took.extend(asker.await??);
    }
    let all = begun.elapsed().as_secs_f64();
    let count = took.len() as f64;
    Ok(Measured { latency: Latency::of(took), micros: all * 1e6 / count, per_second: count / all })
}

/// A Deployment as clusters have them, in production.
fn input() -> Value {
    let container = |n: u32| {
        json!({"name": format!("c{n}"), "image": format!("registry.example/team/app-{n}:1.2.3"),
            "env": (0..10).map(|m| json!({"name": format!("KEY_{m}"), "value": "some value"})).collect::<Vec<_>>(),
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}})
    };
    let labels = json!({"app": "web", "tier": "front", "team": "shop"});
    json!({
        "action": "scale_deployment",
        "parameters": {"scaleDeployment": {"namespace": "prod-eu", "deployment": "web", "replicas": 5}},
        "target": {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "prod-eu", "uid": "0", "labels": labels,
                "annotations": {"deployment.kubernetes.io/revision": "7"}},
            "spec": {"replicas": 3, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container(1), container(2)]}}},
            "status": {"replicas": 3, "readyReplicas": 3, "observedGeneration": 7},
        },
        "targets": [],
        "namespace": {"name": "prod-eu", "labels": {"kubernetes.io/metadata.name": "prod-eu", "environment": "production"}},
        "requester": {"username": "jo", "groups": ["team-shop", "system:authenticated"]},
        "execution": {"namespace": "prod-eu", "name": "scale-web", "uid": "1", "dryRun": false},
        "dryRun": null,
        "cluster": {"nodes": 12, "schedulableNodes": 11, "concurrentActions": 1},
        "time": {"now": "2026-01-01T00:00:00Z"},
    })
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
