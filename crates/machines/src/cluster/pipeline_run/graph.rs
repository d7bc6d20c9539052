//! Which tasks of a pipeline are done, which are next, and which are never run, and why?
//!
//! Everything is derived from the pipeline and its TaskRuns on every look (I11).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pawl_api::tekton::{PipelineSpec, PipelineTask, SkippedTask, TaskRun, WhenExpression};
use serde_json::Value;

use crate::cluster::tekton::is_done;
use crate::cluster::tekton::substitute::{Replacements, ResultName, results_named_in};
use crate::dag::{self, Problems};
use crate::object::Object;

/// What a TaskRun is told when its PipelineRun runs out of time.
pub(super) const TIMED_OUT: &str = "TaskRun cancelled as the PipelineRun it belongs to has timed out.";
/// What a TaskRun is told when its PipelineRun is cancelled.
pub(super) const CANCELLED: &str = "TaskRun cancelled as the PipelineRun it belongs to has been cancelled.";

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has no TaskRun yet.
    New,
    Running,
    Succeeded,
    Failed,
    /// Failed, and the pipeline was told not to mind.
    Ignored,
    Cancelled,
    /// It had a TaskRun, which is gone: what it did is not known, so it is not run again (I2).
    Lost,
}

impl State {
    fn is_done(self) -> bool {
        match self {
            Self::New | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Ignored | Self::Cancelled | Self::Lost => true,
        }
    }

    fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Lost)
    }
}

/// Why a task is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skip {
    When,
    Parents,
    Results,
    Stopping,
    Cancelled,
    Stopped,
    PipelineTimeout,
    TasksTimeout,
    FinallyTimeout,
}

impl Skip {
    /// Tekton's words.
    fn as_str(self) -> &'static str {
        match self {
            Self::When => "When Expressions evaluated to false",
            Self::Parents => "Parent Tasks were skipped",
            Self::Results => "Results were missing",
            Self::Stopping => "PipelineRun was stopping",
            Self::Cancelled => "PipelineRun was gracefully cancelled",
            Self::Stopped => "PipelineRun was gracefully stopped",
            Self::PipelineTimeout => "PipelineRun timeout has been reached",
            Self::TasksTimeout => "PipelineRun Tasks timeout has been reached",
            Self::FinallyTimeout => "PipelineRun Finally timeout has been reached",
        }
    }

    fn is_timeout(self) -> bool {
        matches!(self, Self::PipelineTimeout | Self::TasksTimeout | Self::FinallyTimeout)
    }
}

/// What a person, or the time, says about the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Circumstances {
    pub(super) cancelled: bool,
    pub(super) stopped: bool,
    pub(super) pipeline_timed_out: bool,
    pub(super) tasks_timed_out: bool,
    pub(super) finally_timed_out: bool,
}

/// A task of the pipeline.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) task: PipelineTask,
    pub(super) is_final: bool,
    pub(super) state: State,
    pub(super) skip: Option<Skip>,
    /// Its TaskRun, if there is one.
    pub(super) run: Option<Arc<Object>>,
    pub(super) task_run: Option<Arc<TaskRun>>,
    parents: Vec<usize>,
    /// The results it names.
    pub(super) needs: Vec<ResultName>,
}

impl Node {
    pub(super) fn is_running(&self) -> bool {
        self.state == State::Running
    }

    fn is_settled(&self) -> bool {
        self.state.is_done() || self.skip.is_some()
    }

    /// What follows it may go on.
    fn lets_on(&self) -> bool {
        self.skip.is_some() || matches!(self.state, State::Succeeded | State::Ignored)
    }
}

/// How many tasks are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) succeeded: usize,
    pub(super) failed: usize,
    pub(super) ignored: usize,
    pub(super) cancelled: usize,
    pub(super) skipped: usize,
    pub(super) skipped_for_time: usize,
    pub(super) incomplete: usize,
}

/// A pipeline and where its tasks are.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// Numbers of nodes: what comes first has nothing before it.
    order: Vec<usize>,
    circumstances: Circumstances,
}

/// Why tasks have no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invalid {
    pub(super) of_finally: bool,
    pub(super) problem: String,
}

impl Graph {
    /// Puts the tasks in order.
    pub(super) fn new(spec: &PipelineSpec) -> Result<Self, Invalid> {
        let node = |task: &PipelineTask, is_final| Node {
            task: task.clone(),
            is_final,
            state: State::New,
            skip: None,
            run: None,
            task_run: None,
            parents: Vec::new(),
            needs: needs(task),
        };
        let tasks = spec.tasks.iter().map(|task| node(task, false));
        let mut nodes: Vec<Node> = tasks.chain(spec.finally.iter().map(|task| node(task, true))).collect();
        let invalid = |of_finally, problem: String| Invalid { of_finally, problem };
        let edges: Vec<dag::Node<'_>> = nodes.iter().filter(|node| !node.is_final).map(edges).collect();
        let classes =
            dag::classes(&edges).map_err(|problems: Problems| invalid(false, problems.to_string()))?;
        let number: BTreeMap<&str, usize> = nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| !node.is_final)
            .map(|(at, node)| (node.task.name.as_str(), at))
            .collect();
        let mut order: Vec<usize> =
            classes.forward().flatten().filter_map(|name| number.get(name).copied()).collect();
        let parents: Vec<Vec<usize>> = nodes
            .iter()
            .map(|node| {
                if node.is_final {
                    vec![]
                } else {
                    edges_of(node).filter_map(|name| number.get(name).copied()).collect()
                }
            })
            .collect();
        let finals: Vec<dag::Node<'_>> = nodes
            .iter()
            .filter(|node| node.is_final)
            .map(|node| dag::Node::new(&node.task.name, []))
            .collect();
        dag::classes(&finals).map_err(|problems| invalid(true, problems.to_string()))?;
        if let Some(twice) = finals.iter().find(|node| number.contains_key(node.name)) {
            return Err(invalid(true, format!("{:?} is there more than once", twice.name)));
        }
        order.extend(nodes.iter().enumerate().filter(|(_, node)| node.is_final).map(|(at, _)| at));
        for (node, parents) in nodes.iter_mut().zip(parents) {
            node.parents = parents;
        }
        Ok(Self { nodes, order, circumstances: Circumstances::default() })
    }

    /// Takes in the TaskRuns that are there, by the names of their tasks; `recorded` had one once.
    pub(super) fn see(&mut self, runs: &BTreeMap<String, Arc<Object>>, recorded: &BTreeSet<&str>) {
        for node in &mut self.nodes {
            let Some(object) = runs.get(&node.task.name) else {
                if recorded.contains(node.task.name.as_str()) {
                    node.state = State::Lost;
                }
                continue;
            };
            node.run = Some(Arc::clone(object));
            node.task_run = object.parse::<TaskRun>().ok();
            node.state = node.task_run.as_ref().map_or(State::Running, |run| state(run, &node.task));
        }
    }

    /// Decides which tasks are never run. `table` has the pipeline's parameters; results are added to it.
    pub(super) fn settle(&mut self, circumstances: Circumstances, table: &Replacements) {
        self.circumstances = circumstances;
        let stopping = self
            .nodes
            .iter()
            .any(|node| !node.is_final && (node.state.is_failure() || node.state == State::Cancelled));
        for at in self.order.clone() {
            let Some(node) = self.nodes.get(at).filter(|node| node.state == State::New) else { continue };
            let skip =
                if node.is_final { self.skip_final(node, table) } else { self.skip(node, stopping, table) };
            if let Some(node) = self.nodes.get_mut(at) {
                node.skip = skip;
            }
        }
    }

    fn skip(&self, node: &Node, stopping: bool, table: &Replacements) -> Option<Skip> {
        let parents: Vec<&Node> = node.parents.iter().filter_map(|at| self.nodes.get(*at)).collect();
        let settled = parents.iter().all(|parent| parent.is_settled());
        let Circumstances { cancelled, stopped, pipeline_timed_out, tasks_timed_out, .. } =
            self.circumstances;
        let verdicts = [
            (stopping, Skip::Stopping),
            (cancelled, Skip::Cancelled),
            (stopped, Skip::Stopped),
            (parents.iter().any(|it| it.skip.is_some_and(|skip| skip != Skip::When)), Skip::Parents),
            (settled && node.needs.iter().any(|need| self.was_skipped(need)), Skip::Results),
            (settled && self.missing(node).is_none() && !self.wanted(node, table), Skip::When),
            (pipeline_timed_out, Skip::PipelineTimeout),
            (tasks_timed_out, Skip::TasksTimeout),
        ];
        verdicts.into_iter().find(|(holds, _)| *holds).map(|(_, skip)| skip)
    }

    fn skip_final(&self, node: &Node, table: &Replacements) -> Option<Skip> {
        if !self.tasks_are_done() {
            return None;
        }
        let Circumstances { pipeline_timed_out, finally_timed_out, .. } = self.circumstances;
        let missing = self.missing(node).is_some();
        let verdicts = [
            (missing, Skip::Results),
            (!missing && !self.wanted(node, table), Skip::When),
            (pipeline_timed_out, Skip::PipelineTimeout),
            (finally_timed_out, Skip::FinallyTimeout),
        ];
        verdicts.into_iter().find(|(holds, _)| *holds).map(|(_, skip)| skip)
    }

    fn was_skipped(&self, need: &ResultName) -> bool {
        self.named(&need.task).is_some_and(|node| node.skip.is_some())
    }

    /// The first result that a task needs and that is not there.
    pub(super) fn missing<'a>(&self, node: &'a Node) -> Option<&'a ResultName> {
        node.needs.iter().find(|need| self.result(need).is_none())
    }

    /// What a task found out.
    pub(super) fn result(&self, name: &ResultName) -> Option<&Value> {
        let node = self.named(&name.task).filter(|node| node.state.is_done())?;
        let status = node.task_run.as_ref()?.status.as_ref()?;
        status.results.iter().find(|result| result.name == name.result).map(|result| &result.value)
    }

    pub(super) fn has_succeeded(&self, task: &str) -> bool {
        self.named(task).is_some_and(|node| node.state == State::Succeeded)
    }

    pub(super) fn named(&self, task: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.task.name == task)
    }

    /// Whether its conditions hold.
    fn wanted(&self, node: &Node, table: &Replacements) -> bool {
        let filled = self.table(table, node).pipeline_task(&node.task);
        filled.when.iter().all(holds)
    }

    /// The table with what this task needs of others' results, and, at the end, of how they fared.
    pub(super) fn table(&self, table: &Replacements, node: &Node) -> Replacements {
        let mut table = table.clone();
        for need in &node.needs {
            if let Some(value) = self.result(need) {
                table.result(&need.task, &need.result, value);
            }
        }
        table.text("context.pipelineTask.retries", node.task.retries.unwrap_or_default().to_string());
        if node.is_final {
            let tasks = self.nodes.iter().filter(|node| !node.is_final);
            for other in tasks {
                let condition = other.task_run.as_ref().and_then(|run| run.succeeded());
                let reason = condition.map_or("None", |condition| condition.reason.as_str());
                table.text(format!("tasks.{}.status", other.task.name), word(other.state));
                table.text(format!("tasks.{}.reason", other.task.name), reason);
            }
            table.text("tasks.status", self.aggregate());
        }
        table
    }

    fn aggregate(&self) -> &'static str {
        let tasks: Vec<&Node> = self.nodes.iter().filter(|node| !node.is_final).collect();
        if !self.tasks_are_done() {
            "None"
        } else if tasks.iter().any(|node| node.state.is_failure() || node.state == State::Cancelled) {
            "Failed"
        } else if tasks.iter().any(|node| node.skip.is_some()) {
            "Completed"
        } else {
            "Succeeded"
        }
    }

    pub(super) fn tasks_are_done(&self) -> bool {
        self.nodes.iter().filter(|node| !node.is_final).all(Node::is_settled)
    }

    /// The tasks to start now.
    pub(super) fn next(&self) -> Vec<usize> {
        let tasks_are_done = self.tasks_are_done();
        let ready = |node: &Node| {
            let open = node.state == State::New && node.skip.is_none();
            let parents = || node.parents.iter().filter_map(|at| self.nodes.get(*at)).all(Node::lets_on);
            open && if node.is_final { tasks_are_done } else { parents() }
        };
        self.nodes.iter().enumerate().filter(|(_, node)| ready(node)).map(|(at, _)| at).collect()
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for node in &self.nodes {
            let counter = match (node.state, node.skip) {
                (State::Succeeded, _) => &mut counts.succeeded,
                (State::Failed | State::Lost, _) => &mut counts.failed,
                (State::Ignored, _) => &mut counts.ignored,
                (State::Cancelled, _) => &mut counts.cancelled,
                (State::New, Some(skip)) if skip.is_timeout() => {
                    counts.skipped = counts.skipped.saturating_add(1);
                    &mut counts.skipped_for_time
                }
                (State::New, Some(_)) => &mut counts.skipped,
                (State::New | State::Running, _) => &mut counts.incomplete,
            };
            *counter = counter.saturating_add(1);
        }
        counts
    }

    /// As the status lists them; conditions are shown as they were evaluated.
    pub(super) fn skipped(&self, table: &Replacements) -> Vec<SkippedTask> {
        let skipped = self.nodes.iter().filter_map(|node| Some((node, node.skip?)));
        skipped
            .map(|(node, skip)| SkippedTask {
                name: node.task.name.clone(),
                reason: skip.as_str().to_owned(),
                when_expressions: match skip {
                    Skip::When => self.table(table, node).pipeline_task(&node.task).when,
                    _ => Vec::new(),
                },
            })
            .collect()
    }

    /// Whether every final task that is to run is over.
    pub(super) fn finals_are_done(&self) -> bool {
        self.nodes.iter().filter(|node| node.is_final).all(Node::is_settled)
    }
}

fn edges(node: &Node) -> dag::Node<'_> {
    dag::Node::new(&node.task.name, edges_of(node))
}

fn edges_of(node: &Node) -> impl Iterator<Item = &str> {
    node.task.run_after.iter().map(String::as_str).chain(node.needs.iter().map(|need| need.task.as_str()))
}

/// The results that a task names, wherever it may.
fn needs(task: &PipelineTask) -> Vec<ResultName> {
    let mut found = Vec::new();
    for param in &task.params {
        results_named_in(&param.value, &mut found);
    }
    for when in &task.when {
        let texts = std::iter::once(&when.input).chain(&when.values);
        texts.for_each(|text| found.extend(crate::cluster::tekton::substitute::results_named(text)));
    }
    if let Some(spec) = task.task_spec.as_ref().and_then(|spec| serde_json::to_value(spec).ok()) {
        results_named_in(&spec, &mut found);
    }
    found.sort();
    found.dedup();
    found
}

fn holds(when: &WhenExpression) -> bool {
    let among = when.values.contains(&when.input);
    if when.operator == "notin" { !among } else { among }
}

fn state(run: &TaskRun, task: &PipelineTask) -> State {
    let conditions = run.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let Some(condition) = run.succeeded().filter(|_| is_done(conditions)) else { return State::Running };
    let timed_out = run.spec.status_message.as_deref() == Some(TIMED_OUT);
    match (condition.status.as_str(), condition.reason.as_str()) {
        ("True", _) => State::Succeeded,
        (_, "TaskRunCancelled") if !timed_out => State::Cancelled,
        _ if task.on_error.as_deref() == Some("continue") => State::Ignored,
        _ => State::Failed,
    }
}

/// What `$(tasks.x.status)` says.
fn word(state: State) -> &'static str {
    match state {
        State::Succeeded => "Succeeded",
        State::Failed | State::Ignored | State::Cancelled | State::Lost => "Failed",
        State::New | State::Running => "None",
    }
}
