//! `pawl policy`: what do policies say, and do they say what somebody wrote down?

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use pawl_machines::remedy::safety::{Policies, Verdict};
use pawl_policy::{Port, Workers, fixtures};
use serde_json::{Value, json};

use crate::terminal::Say;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Compare what policies say with files of fixtures: name, input, expect.
    Test(TestArgs),
    /// Print what policies say of an input.
    Eval(EvalArgs),
    /// Print the built-in policy, to be copied and changed.
    Default,
}

#[derive(Debug, clap::Args)]
struct TestArgs {
    /// A file of fixtures, or a directory of `*.yaml` and, unless `--policy` says otherwise, the `*.rego` beside them.
    path: PathBuf,
    /// A file or a directory of `*.rego`; without it those beside the fixtures, and where there are none the built-in one.
    #[arg(long)]
    policy: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct EvalArgs {
    /// The input, as JSON or YAML.
    #[arg(short = 'f', long = "file")]
    input: PathBuf,
    /// A file or a directory of `*.rego`; without it the built-in policy.
    #[arg(long)]
    policy: Option<PathBuf>,
}

pub(crate) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Test(args) => test(args, say).await,
        What::Eval(args) => eval(args, say).await,
        What::Default => {
            say.line(pawl_policy::BUILT_IN.1.trim_end());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The exit code is 1 where something is not as expected.
async fn test(args: &TestArgs, say: &mut dyn Say) -> anyhow::Result<ExitCode> {
    let files =
        if args.path.is_dir() { files(&args.path, &["yaml", "yml"])? } else { vec![args.path.clone()] };
    if files.is_empty() {
        bail!("{} has no *.yaml", args.path.display());
    }
    let beside = if args.path.is_dir() { Some(args.path.as_path()) } else { args.path.parent() };
    let policies = match (&args.policy, beside) {
        (Some(path), _) => read_policies(path)?,
        (None, Some(beside)) => of_files(&self::files(or_here(beside), &["rego"])?)?,
        (None, None) => Policies::default(),
    };
    let port = port()?;
    let (mut passed, mut failed) = (0, 0);
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let fixtures =
            fixtures::read(&text).map_err(|problem| anyhow::anyhow!("{}: {problem}", file.display()))?;
        for fixture in fixtures {
            let verdict = port.safety(&policies, &fixture.input.to_string()).await?;
            let found = fixture.compare(&verdict.decision);
            if found.is_empty() {
                passed += 1;
                say.line(&format!("ok    {}", fixture.name));
            } else {
                failed += 1;
                say.line(&format!("FAIL  {} ({})", fixture.name, file.display()));
                found.iter().for_each(|what| say.line(&format!("      {what}")));
            }
        }
    }
    say.line(&format!("{passed} as expected, {failed} not"));
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The exit code is 0 where it is allowed, and 1 where not.
async fn eval(args: &EvalArgs, say: &mut dyn Say) -> anyhow::Result<ExitCode> {
    let text =
        std::fs::read_to_string(&args.input).with_context(|| format!("read {}", args.input.display()))?;
    // JSON is YAML.
    let input: Value =
        serde_saphyr::from_str(&text).with_context(|| format!("read {}", args.input.display()))?;
    let policies = match &args.policy {
        Some(path) => read_policies(path)?,
        None => Policies::default(),
    };
    let verdict = port()?.safety(&policies, &input.to_string()).await?;
    let Verdict { policy, digest, decision, outdated: _ } = verdict;
    let decision =
        decision.map_err(|problem| anyhow::anyhow!("denied, for it cannot be evaluated: {problem}"))?;
    let shown = json!({"policy": policy, "digest": digest, "decision": decision});
    say.line(&serde_json::to_string_pretty(&shown)?);
    Ok(if decision.allow { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// As the controllers ask.
fn port() -> anyhow::Result<Port> {
    Ok(Port::new(Arc::new(Workers::own().context("find this executable")?)))
}

fn read_policies(path: &Path) -> anyhow::Result<Policies> {
    let files = if path.is_dir() { files(path, &["rego"])? } else { vec![path.to_owned()] };
    if files.is_empty() {
        bail!("{} has no *.rego", path.display());
    }
    of_files(&files)
}

fn of_files(files: &[PathBuf]) -> anyhow::Result<Policies> {
    let mut modules = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        modules.push((file.display().to_string(), text));
    }
    Ok(Policies::of(modules))
}

/// The files of a directory that end so, in the order of their names.
fn files(directory: &Path, endings: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let mut found: Vec<PathBuf> = entries
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one)))
        .collect();
    found.sort();
    Ok(found)
}

/// The directory of `fixtures.yaml` is this one.
fn or_here(directory: &Path) -> &Path {
    if directory.as_os_str().is_empty() { Path::new(".") } else { directory }
}
