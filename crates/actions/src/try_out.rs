//! What would an action change? The API server is asked to do it without effect.

use jiff::Timestamp;
use pawl_api::meta::text;
use pawl_api::remedy::DryRunResults;
use pawl_api::remedy::kubernetes_execution::{EstimatedImpact, MAX_DIFF_BYTES};
use pawl_machines::failure::{Category, Failure};
use pawl_machines::remedy::action::course::{Course, How, Write};
use pawl_machines::remedy::action::seen::Seen;
use pawl_machines::remedy::action::{definition, diff};
use serde_json::Value;

use crate::reading::Known;
use crate::way::{Heard, Way};

/// An object that others write all the time is looked at again this often.
const MAX_CONFLICTS: usize = 5;
/// The lists of a status.
const MAX_TOLD: usize = 32;
const MAX_TOLD_CHARS: usize = 1024;
/// Writes that are told by name.
const MAX_NAMED: usize = 10;
const MAX_DESCRIPTION_CHARS: usize = 4096;

/// A trial, and what the targets would be after it.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    pub(crate) results: DryRunResults,
    pub(crate) after: Seen,
}

/// Tries the next writes of an action.
pub(crate) async fn try_out(way: &Way, known: &Known, now: Timestamp) -> Result<Trial, Failure> {
    let definition = definition(known.order.action);
    for _ in 0..MAX_CONFLICTS {
        let seen = known.look(way, now).await?;
        let writes = match definition.course(&known.context(now), &seen) {
            Course::Step(writes) | Course::Finish(writes) => writes,
            Course::Wait(why) | Course::Done(why) => return Ok(nothing(true, why)),
            Course::Refuse(why) => return Ok(nothing(false, why)),
        };
        if let Some(trial) = all(way, &writes, &seen).await? {
            return Ok(trial);
        }
    }
    Ok(nothing(false, "the targets change faster than they can be looked at".to_owned()))
}

fn nothing(success: bool, why: String) -> Trial {
    let why = text::head(why, MAX_TOLD_CHARS);
    let mut results = DryRunResults { performed: true, success, ..DryRunResults::default() };
    if success {
        results.estimated_impact = Some(EstimatedImpact { description: why, ..EstimatedImpact::default() });
    } else {
        results.errors.push(why);
    }
    Trial { results, after: Seen::default() }
}

/// `None`: somebody else wrote meanwhile.
async fn all(way: &Way, writes: &[Write], seen: &Seen) -> Result<Option<Trial>, Failure> {
    let mut trial = Trial::default();
    let (mut lines, mut replicas) = (Vec::new(), None);
    for write in writes {
        let before = seen.object(&write.place);
        match way.write(write, true).await {
            Ok(Heard { body, warnings }) => {
                trial.results.warnings.extend(warnings);
                let after = match write.how {
                    How::Delete { .. } | How::Evict { .. } => None,
                    How::Patch { .. } | How::Apply(_) | How::Create(_) => Some(body),
                };
                lines.extend(change(write, before, after.as_ref()));
                replicas = replicas.or_else(|| scaled(before, after.as_ref()));
                trial.after.put(write.place.clone(), after);
            }
            Err(failure) => match failure.category {
                Category::Conflict if failure.is("Conflict") => return Ok(None),
                // A budget says: not now. The executor asks again.
                Category::Transient
                    if matches!(write.how, How::Evict { .. }) && failure.is("TooManyRequests") =>
                {
                    trial.results.warnings.push(failure.to_string());
                }
                Category::Transient => return Err(failure),
                Category::Permanent
                | Category::NotFound
                | Category::MissingCredentials
                | Category::Conflict => {
                    trial.results.errors.push(failure.to_string());
                }
            },
        }
    }
    let results = &mut trial.results;
    results.performed = true;
    results.success = results.errors.is_empty();
    for told in [&mut results.warnings, &mut results.errors] {
        told.truncate(MAX_TOLD);
        told.iter_mut().for_each(|line| *line = text::head(line.as_str(), MAX_TOLD_CHARS));
    }
    let diff = lines.join("\n");
    let end = diff.char_indices().map(|(at, _)| at).take_while(|at| *at <= MAX_DIFF_BYTES / 2).last();
    results.diff = if diff.len() <= MAX_DIFF_BYTES {
        diff
    } else {
        format!("{}\n… (cut)", diff.get(..end.unwrap_or_default()).unwrap_or_default())
    };
    results.estimated_impact = Some(impact(writes, replicas));
    Ok(Some(trial))
}

/// The change to one object, under its name.
fn change(write: &Write, before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    let lines = match write.how {
        How::Delete { .. } => vec!["- deleted".to_owned()],
        How::Evict { .. } => vec!["- evicted".to_owned()],
        How::Patch { .. } | How::Apply(_) | How::Create(_) => diff::lines(before, after),
    };
    std::iter::once(write.place.to_string())
        .chain(lines.into_iter().map(|line| format!("  {line}")))
        .collect()
}

fn scaled(before: Option<&Value>, after: Option<&Value>) -> Option<String> {
    let replicas = |object: &Value| object.pointer("/spec/replicas").and_then(Value::as_i64);
    let (before, after) = (replicas(before?)?, replicas(after?)?);
    (before != after).then(|| format!("{before} -> {after}"))
}

fn impact(writes: &[Write], replicas_changed: Option<String>) -> EstimatedImpact {
    let named: Vec<String> = writes.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let mut description = named.join(", ");
    if writes.len() > MAX_NAMED {
        description.push_str(&format!(" and {} more", writes.len() - MAX_NAMED));
    }
    EstimatedImpact {
        resources_affected: i32::try_from(writes.len()).unwrap_or(i32::MAX),
        replicas_changed,
        description: text::head(description, MAX_DESCRIPTION_CHARS),
    }
}
