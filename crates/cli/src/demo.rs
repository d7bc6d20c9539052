//! `pawl demo`: be somebody in the sample that `pawl up --demo` brings: push, open a pull request, comment, look; or be
//! Alertmanager.

pub(crate) mod alert;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::loopback;
use crate::terminal::Say;

/// The repository of the sample.
pub(crate) const REPOSITORY: &str = "acme/infra";

/// In the data directory: where the sample's GitHub is.
pub(crate) const ADDRESS_FILE: &str = "demo-github";

/// How often `checks --watch` looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory of the `pawl up --demo` that is meant.
    #[arg(long, default_value = ".pawl", env = "PAWL_DATA_DIR", global = true)]
    data_dir: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Commit to a branch and push it.
    Push {
        /// The branch; made from the default branch if it is not there.
        #[arg(long, default_value = "feature/change")]
        branch: String,
        #[arg(long, default_value = "A change")]
        message: String,
        /// The files that change.
        #[arg(default_value = "envs/dev/main.tf")]
        files: Vec<String>,
    },
    /// Push a branch and open a pull request for it.
    Pr {
        /// From this person's fork instead of the repository itself: then somebody has to approve it.
        #[arg(long, value_name = "OWNER")]
        fork: Option<String>,
        #[arg(long, default_value = "feature/idea")]
        branch: String,
        /// The files that change.
        #[arg(default_value = "envs/staging/main.tf")]
        files: Vec<String>,
    },
    /// Comment on a pull request, such as `/ok-to-test <sha>`, `/retest`, `/cancel` or `/help`.
    Comment {
        number: i64,
        text: String,
        /// Who says it. alice may write to the repository.
        #[arg(long = "as", default_value = "alice")]
        author: String,
    },
    /// Send an alert, as Alertmanager does: the sample's playbook answers it.
    Alert(alert::Args),
    /// List the check runs there are.
    Checks {
        /// Go on, with a line for each that changes.
        #[arg(long, short)]
        watch: bool,
    },
}

/// What the fake shows; see its overview.
#[derive(Debug, Deserialize)]
struct Overview {
    repositories: Vec<Repository>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Repository {
    name: String,
    branches: BTreeMap<String, String>,
    pulls: Vec<Pull>,
    check_runs: Vec<CheckRun>,
}

#[derive(Debug, Deserialize)]
struct Pull {
    number: i64,
    sha: String,
    open: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct CheckRun {
    id: i64,
    name: String,
    sha: String,
    status: String,
    conclusion: Option<String>,
    title: Option<String>,
}

pub(crate) async fn run(args: &Args, say: &mut dyn Say) -> anyhow::Result<()> {
    if let What::Alert(alert) = &args.what {
        return alert::run(&args.data_dir, alert, say).await;
    }
    let github = GitHub::of(&args.data_dir)?;
    match &args.what {
        // Sent above.
        What::Alert(_) => {}
        What::Push { branch, message, files } => {
            let sha = github.push(REPOSITORY, branch, "alice", message, files).await?;
            say.line(&format!("alice pushed {sha} to {branch} of {REPOSITORY}"));
        }
        What::Pr { fork: None, branch, files } => {
            let sha = github.push(REPOSITORY, branch, "alice", "An idea", files).await?;
            let number = github.open(REPOSITORY, branch, "alice").await?;
            say.line(&format!("alice opened pull request #{number} from {branch} ({sha})"));
        }
        What::Pr { fork: Some(owner), branch, files } => {
            let fork = github.fork(owner).await?;
            let sha = github.push(&fork, branch, owner, "An idea", files).await?;
            let number = github.open(&fork, branch, owner).await?;
            say.line(&format!("{owner} opened pull request #{number} from {fork}:{branch} ({sha})"));
            say.line("it waits for somebody who may write to the repository:");
            say.line(&format!("  {} demo comment {number} '/ok-to-test {sha}'", own_name()));
        }
        What::Comment { number, text, author } => {
            let deed = json!({"do": "comment", "repository": REPOSITORY, "number": number, "author": author,
                "body": text});
            github.act(deed).await?;
            say.line(&format!("{author} said on #{number}: {text}"));
        }
        What::Checks { watch: false } => {
            let repository = github.repository().await?;
            for run in &repository.check_runs {
                say.line(&repository.line(run));
            }
        }
        What::Checks { watch: true } => watch(&github, say).await?,
    }
    Ok(())
}

/// A line for each check run that is new or not as it was, until interrupted.
async fn watch(github: &GitHub, say: &mut dyn Say) -> anyhow::Result<()> {
    let mut known: BTreeMap<i64, CheckRun> = BTreeMap::new();
    loop {
        let repository = github.repository().await?;
        for run in &repository.check_runs {
            if known.insert(run.id, run.clone()).as_ref() != Some(run) {
                say.line(&repository.line(run));
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What `pawl up --demo` wrote down for us.
fn left_by_up(data_dir: &Path, name: &str) -> anyhow::Result<String> {
    let file = data_dir.join(name);
    let text = std::fs::read_to_string(&file).with_context(|| {
        format!(
            "{} is not there: start `{} up --demo` first, or give its --data-dir",
            file.display(),
            own_name()
        )
    })?;
    Ok(text.trim().to_owned())
}

/// As it was started, so that what is printed can be pasted.
pub(crate) fn own_name() -> String {
    std::env::args().next().unwrap_or_else(|| "pawl".to_owned())
}

impl Repository {
    fn line(&self, run: &CheckRun) -> String {
        let state = run.conclusion.as_deref().unwrap_or(&run.status);
        let sha = run.sha.get(..8).unwrap_or(&run.sha);
        let pull =
            self.pulls.iter().filter(|pull| pull.sha == run.sha && pull.open).map(|pull| pull.number).max();
        let branch = self.branches.iter().find(|(_, head)| **head == run.sha).map(|(name, _)| name.clone());
        let place = pull.map(|number| format!("#{number}")).or(branch).unwrap_or_default();
        let title = run.title.as_deref().unwrap_or_default();
        let line = format!("{:<34} {state:<16} {sha} {place:<16} {title}", run.name);
        line.trim_end().to_owned()
    }
}

/// The sample's GitHub, as people reach it.
struct GitHub {
    address: String,
}

impl GitHub {
    fn of(data_dir: &Path) -> anyhow::Result<Self> {
        Ok(Self { address: left_by_up(data_dir, ADDRESS_FILE)? })
    }

    async fn push(
        &self,
        repository: &str,
        branch: &str,
        author: &str,
        message: &str,
        files: &[String],
    ) -> anyhow::Result<String> {
        let content = format!("# changed by {author} at {}\n", jiff::Timestamp::now());
        let put: BTreeMap<&str, &str> = files.iter().map(|file| (file.as_str(), content.as_str())).collect();
        let deed = json!({"do": "push", "repository": repository, "branch": branch, "author": author,
            "message": message, "put": put});
        text(&self.act(deed).await?, "sha")
    }

    async fn open(&self, from: &str, head: &str, author: &str) -> anyhow::Result<i64> {
        let deed =
            json!({"do": "open", "repository": REPOSITORY, "from": from, "head": head, "author": author});
        self.act(deed).await?.get("number").and_then(Value::as_i64).context("no pull request was made")
    }

    /// Somebody's fork, made if it is not there.
    async fn fork(&self, owner: &str) -> anyhow::Result<String> {
        let name = REPOSITORY.split_once('/').map_or(REPOSITORY, |(_, name)| name);
        let fork = format!("{owner}/{name}");
        if self.overview().await?.repositories.iter().any(|repository| repository.name == fork) {
            return Ok(fork);
        }
        let deed = json!({"do": "fork", "repository": REPOSITORY, "owner": owner});
        text(&self.act(deed).await?, "repository")
    }

    async fn act(&self, deed: Value) -> anyhow::Result<Value> {
        let answer = loopback::ask(&self.address, "/people", Some(&deed.to_string())).await?;
        Ok(serde_json::from_str(&answer)?)
    }

    async fn repository(&self) -> anyhow::Result<Repository> {
        let mut all = self.overview().await?.repositories.into_iter();
        all.find(|repository| repository.name == REPOSITORY)
            .with_context(|| format!("there is no repository {REPOSITORY}"))
    }

    async fn overview(&self) -> anyhow::Result<Overview> {
        Ok(serde_json::from_str(&loopback::ask(&self.address, "/people", None).await?)?)
    }
}

fn text(answer: &Value, field: &str) -> anyhow::Result<String> {
    Ok(answer
        .get(field)
        .and_then(Value::as_str)
        .with_context(|| format!("no {field} in {answer}"))?
        .to_owned())
}
