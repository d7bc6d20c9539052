//! What would run, and why?

use pawl_api::git::branch::BranchSpec;
use pawl_machines::git::matching::{self, Target, Verdict, WhyNot};
use serde_json::{Value, json};

use super::checkout::{Change, Checkout};
use super::templates::Manifests;
use crate::terminal::{Say, printable};

/// Everything that was found out before anything runs.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) checkout: Checkout,
    pub(super) change: Change,
    pub(super) manifests: Manifests,
    pub(super) is_default_branch: bool,
    /// What every template says, in order of their names.
    pub(super) verdicts: Vec<Verdict>,
}

impl Plan {
    pub(super) fn make(checkout: Checkout, change: Change, manifests: Manifests) -> Self {
        let is_default_branch = checkout.is_on(&change.base);
        let templates = manifests.templates.iter().map(|(name, spec)| (name.as_str(), spec));
        let verdicts = matching::fan_out(&change.files, templates, is_default_branch);
        Self { checkout, change, manifests, is_default_branch, verdicts }
    }

    /// Whether there is nothing to run.
    pub(super) fn is_empty(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.targets.is_empty())
    }

    /// Whether some template is malformed.
    pub(super) fn has_malformed(&self) -> bool {
        self.verdicts.iter().any(is_malformed)
    }

    /// The ref as its Branch object has it.
    pub(super) fn branch(&self) -> BranchSpec {
        let Checkout { owner, repository, head, .. } = &self.checkout;
        BranchSpec {
            owner: owner.clone(),
            repository: repository.clone(),
            name: self.checkout.reference().to_owned(),
            sha: head.clone(),
            ..BranchSpec::default()
        }
    }

    /// One line: what is compared with what.
    pub(super) fn headline(&self) -> String {
        let files = self.change.files.len();
        let common: String = self.change.merge_base.chars().take(8).collect();
        let plural = if files == 1 { "file" } else { "files" };
        format!(
            "{}: {files} {plural} changed since {} ({common})",
            printable(self.checkout.reference()),
            printable(&self.change.base)
        )
    }

    /// For people.
    pub(super) fn say(&self, say: &mut dyn Say) {
        say.line(&self.headline());
        for verdict in &self.verdicts {
            say.line("");
            match verdict.targets.len() {
                0 => say.line(&format!(
                    "{}: does not run: {}",
                    verdict.template,
                    printable(&verdict.to_string())
                )),
                1 => say.line(&format!("{}: runs once", verdict.template)),
                runs => say.line(&format!("{}: runs {runs} times, {}", verdict.template, per(verdict))),
            }
            let width = verdict.targets.iter().map(|target| target.path.chars().count()).max().unwrap_or(0);
            for target in &verdict.targets {
                let (path, files) = (printable(&target.path), printable(&files(target)));
                let (after, without) = self.waits_for(verdict, target);
                let clause = |word: &str, others: &[&str], end: &str| match others {
                    [] => String::new(),
                    others => format!("; {word} {}{end}", others.join(", ")),
                };
                let order =
                    clause("after", &after, "") + &clause("not after", &without, ": not run for this path");
                say.line(&format!("  {path:<width$}  {files}{order}"));
            }
        }
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let files: Vec<Value> = self
            .change
            .files
            .iter()
            .map(|file| json!({"path": file.path, "previousPath": file.previous_path, "removed": file.removed}))
            .collect();
        let templates: Vec<Value> = self.verdicts.iter().map(|verdict| self.verdict_json(verdict)).collect();
        json!({
            "ref": self.checkout.reference(), "sha": self.checkout.head, "base": self.change.base,
            "mergeBase": self.change.merge_base, "isDefaultBranch": self.is_default_branch,
            "changedFiles": files, "templates": templates,
        })
    }

    fn verdict_json(&self, verdict: &Verdict) -> Value {
        let target = |target: &Target| {
            json!({"path": target.path, "fileCount": target.files, "files": target.examples,
                "after": self.waits_for(verdict, target).0})
        };
        json!({
            "template": verdict.template, "executionUnit": verdict.unit.as_str(),
            "runs": !verdict.targets.is_empty(), "reason": verdict.reason().as_str(),
            "message": verdict.to_string(),
            "targets": verdict.targets.iter().map(target).collect::<Vec<_>>(),
        })
    }

    /// The templates whose run for the same path comes first, and those that have none and so are not waited for.
    fn waits_for(&self, verdict: &Verdict, target: &Target) -> (Vec<&str>, Vec<&str>) {
        let spec = self.manifests.templates.get(&verdict.template);
        let others = spec.map(|spec| spec.depends_on.as_slice()).unwrap_or_default();
        others.iter().map(String::as_str).partition(|other| {
            let theirs = self.verdicts.iter().filter(|one| one.template == **other);
            theirs.flat_map(|one| &one.targets).any(|their| their.path == target.path)
        })
    }
}

/// Whether a template cannot be used whatever changes: somebody has to mend it.
pub(super) fn is_malformed(verdict: &Verdict) -> bool {
    match &verdict.why_not {
        Some(WhyNot::BadGlob(_) | WhyNot::Cycle(_) | WhyNot::DependsOnInvalid(_)) => true,
        Some(
            WhyNot::NoChangedFiles
            | WhyNot::DefaultBranchOnly
            | WhyNot::NotOnDefaultBranch
            | WhyNot::NothingMatched { .. }
            | WhyNot::AllIgnored { .. }
            | WhyNot::RootFiles { .. },
        )
        | None => false,
    }
}

fn per(verdict: &Verdict) -> &'static str {
    use pawl_api::git::workflow_template::ExecutionUnit;
    match verdict.unit {
        ExecutionUnit::Folder => "once for each folder",
        ExecutionUnit::File => "once for each file",
        ExecutionUnit::Repository => "once for the repository",
    }
}

fn files(target: &Target) -> String {
    let more = target.files.saturating_sub(target.examples.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", target.examples.join(", "))
}
