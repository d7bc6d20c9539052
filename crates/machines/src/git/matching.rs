//! Which templates run for a change, on which paths, and why not the others?
//!
//! ```text
//! changed files ─┐
//! templates ─────┼─▶ per template, in order of name:  valid? ─▶ this ref? ─▶ some file matches? ─▶ one target per unit
//! which ref ─────┘                                       └──────────┴────────────┴─▶ why it does not run, in words (I3)
//! ```
//!
//! The Branch's controller, `pawl run` and `pawl explain` all ask here, so what a dry run says is what happens.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use pawl_api::git::branch::Evaluation;
use pawl_api::git::workflow::parameters;
use pawl_api::git::workflow_template::{ExecutionUnit, Match, On, RootFiles};
use pawl_api::git::{BranchSpec, WorkflowPhase, WorkflowSpec, WorkflowTemplateSpec};
use pawl_api::meta::Reason;

pub use super::github::ChangedFile;
use super::glob::{BadPattern, Glob, Subject};
use crate::dag::{self, Node};

/// The path of a Workflow for the whole repository, and the folder of files at its root.
pub const ROOT: &str = ".";

/// How many files are named where only some can be: enough to see a pattern.
const EXAMPLES: usize = 3;
/// How much of a file's name or of a pattern is shown, so that three of each fit into an evaluation's message.
const EXAMPLE_CHARS: usize = 100;
/// What the CRD allows in an evaluation's message.
const MESSAGE_CHARS: usize = 1024;

impl ChangedFile {
    /// A file that was added or edited.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), previous_path: None, removed: false }
    }
}

/// What a template says of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub template: String,
    pub unit: ExecutionUnit,
    /// Sorted by path, each path once; none if there is a reason not to run.
    pub targets: Vec<Target>,
    /// Why there are none.
    pub why_not: Option<WhyNot>,
}

/// What one Workflow would run for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The folder or file; [`ROOT`] is the whole repository.
    pub path: String,
    /// Some of the files that led here.
    pub examples: Vec<String>,
    /// How many there were.
    pub files: usize,
}

/// Why a template does not run for a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyNot {
    NoChangedFiles,
    /// `on: default`, and this is another ref.
    DefaultBranchOnly,
    /// `on: branch`, and this is the default branch.
    NotOnDefaultBranch,
    BadGlob(BadGlob),
    /// The templates that wait for each other, each for the next and the last for the first.
    Cycle(Vec<String>),
    /// It waits for a template that cannot run.
    DependsOnInvalid(String),
    /// No pattern matched any file.
    NothingMatched {
        files: usize,
        examples: Vec<String>,
    },
    /// All that matched was ignored: files, and by which pattern.
    AllIgnored {
        files: usize,
        examples: Vec<(String, String)>,
    },
    /// All that matched lies at the root, which is no folder to run in.
    RootFiles {
        files: usize,
        examples: Vec<String>,
    },
}

/// Which of a template's patterns is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.match.{field}[{index}]: {bad}")]
pub struct BadGlob {
    pub field: &'static str,
    pub index: usize,
    pub bad: BadPattern,
}

/// What a template's patterns say of one file.
#[derive(Clone, Copy, Debug)]
pub enum Look<'a> {
    Matches(&'a Glob),
    /// It would match, but is ignored.
    Ignored {
        by: &'a Glob,
    },
    Nothing,
}

/// A template's patterns, compiled.
#[derive(Clone, Debug)]
pub struct Matcher {
    paths: Vec<Glob>,
    ignore: Vec<Glob>,
}

impl Matcher {
    /// Compiles the patterns of a template.
    ///
    /// # Errors
    /// When one is malformed.
    pub fn new(of: &Match) -> Result<Self, BadGlob> {
        let compile = |field: &'static str, patterns: &[String]| -> Result<Vec<Glob>, BadGlob> {
            let all = patterns.iter().enumerate();
            all.map(|(index, one)| Glob::new(one).map_err(|bad| BadGlob { field, index, bad })).collect()
        };
        Ok(Self { paths: compile("paths", &of.paths)?, ignore: compile("ignore", &of.ignore)? })
    }

    pub fn look(&self, file: &Subject) -> Look<'_> {
        let Some(found) = self.paths.iter().find(|glob| glob.matches_subject(file)) else {
            return Look::Nothing;
        };
        match self.ignore.iter().find(|glob| glob.matches_subject(file)) {
            Some(by) => Look::Ignored { by },
            None => Look::Matches(found),
        }
    }
}

/// What every template says of a change to a ref, in order of their names. Removed files count, and both names of
/// renamed ones.
pub fn fan_out<'a>(
    files: &[ChangedFile],
    templates: impl IntoIterator<Item = (&'a str, &'a WorkflowTemplateSpec)>,
    is_default_branch: bool,
) -> Vec<Verdict> {
    let templates: BTreeMap<&str, &WorkflowTemplateSpec> = templates.into_iter().collect();
    let names: BTreeSet<&str> = files
        .iter()
        .flat_map(|file| [Some(&file.path), file.previous_path.as_ref()])
        .flatten()
        .map(String::as_str)
        .collect();
    let subjects: Vec<(&str, Subject)> = names.into_iter().map(|name| (name, Subject::new(name))).collect();
    let verdict = |(name, usable): (&str, Result<Matcher, WhyNot>), spec: &WorkflowTemplateSpec| {
        let targets = usable.and_then(|matcher| targets(spec, &matcher, &subjects, is_default_branch));
        let (targets, why_not) = match targets {
            Ok(targets) => (targets, None),
            Err(why) => (vec![], Some(why)),
        };
        Verdict { template: name.to_owned(), unit: spec.match_.execution_unit, targets, why_not }
    };
    // Both in order of the same names.
    usable(&templates).into_iter().zip(templates.values()).map(|(one, spec)| verdict(one, spec)).collect()
}

/// In which order targets can be run: what is in one stage waits only for what is in earlier ones. A target waits for
/// the targets of the same path of the templates that its own depends on.
pub fn stages<'a>(
    verdicts: &'a [Verdict],
    templates: impl IntoIterator<Item = (&'a str, &'a WorkflowTemplateSpec)>,
) -> Vec<Vec<(&'a str, &'a str)>> {
    let templates: BTreeMap<&str, &WorkflowTemplateSpec> = templates.into_iter().collect();
    let mut stages: Vec<Vec<(&str, &str)>> = Vec::new();
    let mut stage_of: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for verdict in in_order(verdicts, &templates) {
        let depends_on = templates
            .get(verdict.template.as_str())
            .map(|spec| spec.depends_on.as_slice())
            .unwrap_or_default();
        for target in &verdict.targets {
            let before =
                depends_on.iter().filter_map(|other| stage_of.get(&(other.as_str(), target.path.as_str())));
            let stage = before.max().map_or(0, |latest| latest + 1);
            let unit = (verdict.template.as_str(), target.path.as_str());
            stage_of.insert(unit, stage);
            if stages.len() <= stage {
                stages.resize_with(stage + 1, Vec::new);
            }
            if let Some(stage) = stages.get_mut(stage) {
                stage.push(unit);
            }
        }
    }
    for stage in &mut stages {
        stage.sort_unstable();
    }
    stages
}

/// The Workflow of one target. `workspace` is the claim that its containers share and where they find it.
pub fn workflow_spec(
    branch: (&str, &BranchSpec),
    template: (&str, &WorkflowTemplateSpec),
    path: &str,
    is_default_branch: bool,
    workspace: Option<(&str, &str)>,
) -> WorkflowSpec {
    let mut parameters = BTreeMap::from([
        (parameters::IS_DEFAULT_BRANCH.to_owned(), is_default_branch.to_string()),
        (parameters::EXECUTION_UNIT.to_owned(), template.1.match_.execution_unit.as_str().to_owned()),
    ]);
    if let Some((claim, mount_path)) = workspace {
        parameters.insert(parameters::WORKSPACE_CLAIM_NAME.to_owned(), claim.to_owned());
        parameters.insert(parameters::WORKSPACE_MOUNT_PATH.to_owned(), mount_path.to_owned());
    }
    WorkflowSpec {
        owner: branch.1.owner.clone(),
        repository: branch.1.repository.clone(),
        branch: branch.0.to_owned(),
        sha: branch.1.sha.clone(),
        template: template.0.to_owned(),
        path: path.to_owned(),
        parameters,
        attempt: 1,
    }
}

/// Whether what a target waits for is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependencies<'a> {
    /// All of it succeeded, or there is nothing to wait for.
    Met,
    /// The first template that has not succeeded yet.
    Waiting(&'a str),
    /// The first that never will.
    Failed(&'a str),
}

/// How it stands with what a target waits for: the Workflows of these templates for the same commit and path, of which
/// `phase` tells the phase (`None`: there is no such Workflow, so there is nothing to wait for).
pub fn dependencies<'a>(
    depends_on: impl IntoIterator<Item = &'a str>,
    phase: impl Fn(&str) -> Option<Option<WorkflowPhase>>,
) -> Dependencies<'a> {
    let mut state = Dependencies::Met;
    for other in depends_on {
        match phase(other) {
            None | Some(Some(WorkflowPhase::Succeeded)) => {}
            Some(Some(WorkflowPhase::Failed | WorkflowPhase::Cancelled)) => {
                return Dependencies::Failed(other);
            }
            Some(None | Some(WorkflowPhase::Pending | WorkflowPhase::Running)) => {
                if state == Dependencies::Met {
                    state = Dependencies::Waiting(other);
                }
            }
        }
    }
    state
}

/// The templates that wait for each other, each starting at its smallest name; unknown dependencies are no hindrance.
pub fn cycles<'a>(templates: impl IntoIterator<Item = (&'a str, &'a [String])>) -> Vec<Vec<String>> {
    let mut templates: BTreeMap<&str, &[String]> = templates.into_iter().collect();
    let mut all: Vec<Vec<String>> = Vec::new();
    // Only some are told at a time, and one for each knot.
    while let Err(problems) = dag::classes(&nodes(&templates)) {
        if problems.cycles.is_empty() {
            break;
        }
        templates.retain(|name, _| !problems.cycles.iter().flatten().any(|member| member == name));
        all.extend(problems.cycles);
    }
    all
}

/// `a -> b -> a`: a way round that leads back to where it starts.
pub fn way_round(cycle: &[String]) -> String {
    let first = cycle.first().map(String::as_str).unwrap_or_default();
    format!("{} -> {first}", cycle.join(" -> "))
}

impl Verdict {
    /// As it stands in the status of a Branch; `version` is the template's UID and generation.
    pub fn evaluation(&self, version: impl Into<String>) -> Evaluation {
        Evaluation {
            template: self.template.clone(),
            version: version.into(),
            workflows: i64::try_from(self.targets.len()).unwrap_or(i64::MAX),
            reason: self.reason().into(),
            message: self.to_string().chars().take(MESSAGE_CHARS).collect(),
        }
    }

    /// Why it runs or does not, as one stable word.
    pub fn reason(&self) -> Reason {
        self.why_not.as_ref().map_or(Reason::Matched, WhyNot::reason)
    }
}

/// Why it runs or does not, in words.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.why_not {
            return why.fmt(f);
        }
        let files: usize = self.targets.iter().map(|target| target.files).sum();
        let examples = self.targets.iter().flat_map(|target| &target.examples);
        write!(f, "{}: {}", counted(files, "file matches", "files match"), some_of(examples, files))
    }
}

impl WhyNot {
    pub const fn reason(&self) -> Reason {
        match self {
            Self::NoChangedFiles => Reason::NoChangedFiles,
            Self::DefaultBranchOnly | Self::NotOnDefaultBranch => Reason::OtherRef,
            Self::BadGlob(_) => Reason::BadGlob,
            Self::Cycle(_) => Reason::DependencyCycle,
            Self::DependsOnInvalid(_) => Reason::TemplateInvalid,
            Self::NothingMatched { .. } => Reason::NothingMatched,
            Self::AllIgnored { .. } => Reason::AllIgnored,
            Self::RootFiles { .. } => Reason::RootFilesIgnored,
        }
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoChangedFiles => f.write_str("no file changed"),
            Self::DefaultBranchOnly => f.write_str("on: default: it runs for the default branch only"),
            Self::NotOnDefaultBranch => f.write_str("on: branch: it does not run for the default branch"),
            Self::BadGlob(bad) => bad.fmt(f),
            Self::Cycle(cycle) => write!(f, "spec.dependsOn: {} is a cycle", way_round(cycle)),
            Self::DependsOnInvalid(name) => {
                write!(
                    f,
                    "spec.dependsOn: WorkflowTemplate {name} is not valid, so it will never have run before"
                )
            }
            Self::NothingMatched { files, examples } => {
                let files_changed =
                    counted(*files, "file changed and does not match", "files changed and none matches");
                write!(f, "{files_changed}: {}", some_of(examples, *files))
            }
            Self::AllIgnored { files, examples } => {
                let all = counted(*files, "file matches and is ignored", "files match and all are ignored");
                write!(f, "{all}: ")?;
                for (at, (file, by)) in examples.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{} (by {})", shortened(file), shortened(by))?;
                }
                f.write_str(if *files > examples.len() { ", …" } else { "" })
            }
            Self::RootFiles { files, examples } => {
                let all = counted(*files, "file matches, at the root", "files match, all at the root");
                write!(f, "{all}, which counts only with rootFiles: run: {}", some_of(examples, *files))
            }
        }
    }
}

/// The patterns of each template, or why it cannot run whatever changes.
fn usable<'a>(
    templates: &BTreeMap<&'a str, &'a WorkflowTemplateSpec>,
) -> BTreeMap<&'a str, Result<Matcher, WhyNot>> {
    let compile = |spec: &WorkflowTemplateSpec| Matcher::new(&spec.match_).map_err(WhyNot::BadGlob);
    let mut all: BTreeMap<&str, _> = templates.iter().map(|(name, spec)| (*name, compile(spec))).collect();
    let depends_on = templates.iter().map(|(name, spec)| (*name, spec.depends_on.as_slice()));
    for cycle in cycles(depends_on) {
        for member in &cycle {
            if let Some(usable) = all.get_mut(member.as_str()).filter(|usable| usable.is_ok()) {
                *usable = Err(WhyNot::Cycle(cycle.clone()));
            }
        }
    }
    // What waits for one of those would wait for ever, or run without what it asked to come first.
    loop {
        let is_not = |name: &str| all.get(name).is_some_and(Result::is_err);
        let affected: Vec<(&str, String)> = templates
            .iter()
            .filter(|(name, _)| !is_not(name))
            .filter_map(|(name, spec)| {
                Some((*name, spec.depends_on.iter().find(|other| is_not(other))?.clone()))
            })
            .collect();
        if affected.is_empty() {
            return all;
        }
        all.extend(affected.into_iter().map(|(name, other)| (name, Err(WhyNot::DependsOnInvalid(other)))));
    }
}

fn targets(
    spec: &WorkflowTemplateSpec,
    matcher: &Matcher,
    files: &[(&str, Subject)],
    is_default_branch: bool,
) -> Result<Vec<Target>, WhyNot> {
    match (spec.on, is_default_branch) {
        (On::All, _) | (On::Default, true) | (On::Branch, false) => {}
        (On::Default, false) => return Err(WhyNot::DefaultBranchOnly),
        (On::Branch, true) => return Err(WhyNot::NotOnDefaultBranch),
    }
    if files.is_empty() {
        return Err(WhyNot::NoChangedFiles);
    }
    let (mut matched, mut ignored) = (Vec::new(), Vec::new());
    for (file, subject) in files {
        match matcher.look(subject) {
            Look::Matches(_) => matched.push(*file),
            Look::Ignored { by } => ignored.push((*file, by)),
            Look::Nothing => {}
        }
    }
    if matched.is_empty() && !ignored.is_empty() {
        let examples = ignored.iter().take(EXAMPLES).map(|(file, by)| ((*file).to_owned(), by.to_string()));
        return Err(WhyNot::AllIgnored { files: ignored.len(), examples: examples.collect() });
    }
    if matched.is_empty() {
        let examples = examples(files.iter().map(|(file, _)| *file));
        return Err(WhyNot::NothingMatched { files: files.len(), examples });
    }
    let mut by_path: BTreeMap<&str, Target> = BTreeMap::new();
    for file in &matched {
        let Some(path) = unit_of(file, spec) else { continue };
        let target = by_path.entry(path).or_insert_with(|| Target {
            path: path.to_owned(),
            examples: vec![],
            files: 0,
        });
        target.files += 1;
        if target.examples.len() < EXAMPLES {
            target.examples.push((*file).to_owned());
        }
    }
    if by_path.is_empty() {
        return Err(WhyNot::RootFiles { files: matched.len(), examples: examples(matched.iter().copied()) });
    }
    Ok(by_path.into_values().collect())
}

/// What a file that matches leads to a run for.
fn unit_of<'a>(file: &'a str, spec: &WorkflowTemplateSpec) -> Option<&'a str> {
    match (spec.match_.execution_unit, file.rsplit_once('/')) {
        (ExecutionUnit::Repository, _) => Some(ROOT),
        (ExecutionUnit::File, _) => Some(file),
        (ExecutionUnit::Folder, Some((folder, _))) => Some(folder),
        (ExecutionUnit::Folder, None) => match spec.root_files {
            RootFiles::Run => Some(ROOT),
            RootFiles::Ignore => None,
        },
    }
}

/// Verdicts with those first that others wait for.
fn in_order<'a>(
    verdicts: &'a [Verdict],
    templates: &BTreeMap<&'a str, &'a WorkflowTemplateSpec>,
) -> Vec<&'a Verdict> {
    // Only those that run, and what is not there is not waited for: nothing is left that the order could fail on.
    let running: BTreeMap<&str, &Verdict> = verdicts
        .iter()
        .filter(|verdict| !verdict.targets.is_empty())
        .map(|verdict| (verdict.template.as_str(), verdict))
        .collect();
    let depends_on: BTreeMap<&str, &[String]> = running
        .keys()
        .map(|name| (*name, templates.get(name).map(|spec| spec.depends_on.as_slice()).unwrap_or_default()))
        .collect();
    match dag::classes(&nodes(&depends_on)) {
        Ok(classes) => classes.forward().flatten().filter_map(|name| running.get(name).copied()).collect(),
        Err(_) => running.into_values().collect(),
    }
}

/// A graph without what is not there.
fn nodes<'a>(depends_on: &BTreeMap<&'a str, &'a [String]>) -> Vec<Node<'a>> {
    let known = |others: &'a [String]| {
        others.iter().map(String::as_str).filter(|other| depends_on.contains_key(other)).collect::<Vec<_>>()
    };
    depends_on.iter().map(|(name, others)| Node::new(name, known(others))).collect()
}

fn examples<'a>(files: impl Iterator<Item = &'a str>) -> Vec<String> {
    files.take(EXAMPLES).map(str::to_owned).collect()
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn some_of<'a>(files: impl IntoIterator<Item = &'a String>, all: usize) -> String {
    let shown: Vec<String> = files.into_iter().take(EXAMPLES).map(|file| shortened(file)).collect();
    let more = if all > shown.len() { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// The end of a path says more than its beginning.
fn shortened(path: &str) -> String {
    let length = path.chars().count();
    if length <= EXAMPLE_CHARS {
        return path.to_owned();
    }
    let kept: String = path.chars().skip(length - EXAMPLE_CHARS + 1).collect();
    format!("…{kept}")
}

#[cfg(test)]
mod tests;
