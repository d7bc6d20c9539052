//! What is the next thing to do for a CronJob: which Job is due, and which finished ones are no longer kept?
//!
//! ```text
//! the last time that has come and was not used ─▶ suspended, too late, or another still runs? ─▶ a Job named after the minute
//! ```
//! The Job's name is the CronJob's and the minute it stands for, so a time makes one Job however often it is decided.
//! Schedules are in UTC: another `timeZone` is said to be unknown.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pawl_api::k8s::{CRON_JOB, JOB};
use serde_json::{Value, json};

use crate::deploy::cron::Schedule;
use crate::machine::{Description, Machine, Watch, Write};
use crate::object::Object;
use crate::plan::{Note, Plan, Step};
use crate::view::Context;

/// The time a Job stands for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Kubernetes' defaults for how many finished Jobs are kept.
const KEPT_SUCCESSFUL: i32 = 3;
const KEPT_FAILED: i32 = 1;
/// Missed times that are walked through, about two months of every minute; a longer gap is looked at from its last day.
const MAX_MISSED: usize = 100_000;
const LAST_DAY: Duration = Duration::from_hours(24);
const SECONDS_PER_MINUTE: i64 = 60;

/// Makes Jobs when their time has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct CronJobs;

/// A CronJob and its Jobs.
#[derive(Debug)]
struct Facts<'a> {
    cx: &'a Context<'a, CronJob>,
    jobs: Vec<Made>,
}

/// One of its Jobs.
#[derive(Debug)]
struct Made {
    object: Arc<Object>,
    /// `Complete` or `Failed`, once it is over.
    ended: Option<&'static str>,
    completed_at: Option<Timestamp>,
}

impl Machine for CronJobs {
    type Kind = CronJob;
    type Status = CronJobStatus;

    fn description(&self) -> Description {
        Description {
            watches: vec![Watch::owned(JOB)],
            writes: vec![Write::status(CRON_JOB), Write::main(JOB, &["create", "delete"])],
            ..Description::new("cronjob", CRON_JOB)
        }
    }

    fn is_fenced(&self) -> bool {
        true
    }

    fn reconcile(&self, cx: &Context<'_, CronJob>) -> Plan<CronJobStatus> {
        if cx.object.is_deleting() {
            return Plan::rest();
        }
        let jobs = cx.view.controlled(&JOB, cx.object).into_iter().filter_map(Made::of);
        let facts = Facts { cx, jobs: jobs.collect() };
        let spec = &cx.typed.spec;
        let mut status = facts.status();
        let mut plan = facts.forget(spec);
        for name in facts.just_ended() {
            plan = plan.note(name);
        }
        if spec.suspend == Some(true) {
            return plan.status(status);
        }
        let schedule = match schedule(spec) {
            Ok(schedule) => schedule,
            Err(note) => return plan.note(*note).status(status),
        };
        if let Some(due) = facts.due(spec, &schedule) {
            plan = facts.start(plan, spec, due, &mut status);
        }
        match schedule.after(cx.now) {
            Some(next) => plan.wake_at(next).status(status),
            None => plan.status(status),
        }
    }
}

fn schedule(spec: &CronJobSpec) -> Result<Schedule, Box<Note>> {
    let zone = spec.time_zone.as_deref().unwrap_or("UTC");
    if !matches!(zone, "UTC" | "Etc/UTC") {
        let message = format!("invalid timeZone: {zone:?}: schedules are in UTC here");
        return Err(Box::new(Note::warning("UnknownTimeZone", message)));
    }
    let text = match spec.schedule.trim() {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        five_fields => five_fields,
    };
    Schedule::parse(text).map_err(|bad| Box::new(Note::warning("UnparseableSchedule", bad.to_string())))
}

impl Made {
    fn of(object: Arc<Object>) -> Option<Self> {
        let job = object.parse::<Job>().ok()?;
        let status = job.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let held = |kind: &str| conditions.iter().any(|one| one.type_ == kind && one.status == "True");
        let ended = ["Complete", "Failed"].into_iter().find(|kind| held(kind));
        let completed_at = status.and_then(|status| Some(status.completion_time.as_ref()?.0));
        Some(Self { ended, completed_at, object })
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(JOB.api_version()),
            kind: Some(JOB.kind.to_string()),
            name: Some(self.object.name().to_owned()),
            namespace: self.object.namespace().map(str::to_owned),
            resource_version: Some(self.object.resource_version().to_owned()),
            uid: Some(self.object.uid().to_owned()),
            ..ObjectReference::default()
        }
    }

    fn delete(&self) -> Step {
        Step::delete(&self.object)
    }
}

impl Facts<'_> {
    fn before(&self) -> CronJobStatus {
        self.cx.typed.status.clone().unwrap_or_default()
    }

    fn active(&self) -> impl Iterator<Item = &Made> {
        self.jobs.iter().filter(|job| job.ended.is_none() && !job.object.is_deleting())
    }

    fn status(&self) -> CronJobStatus {
        let before = self.before();
        let known = before.active.unwrap_or_default();
        let active: Vec<ObjectReference> = self
            .active()
            .map(|job| {
                // Which version of the Job was seen first is kept: its progress is not this status's to tell.
                let same = |one: &&ObjectReference| one.uid.as_deref() == Some(job.object.uid());
                known.iter().find(same).cloned().unwrap_or_else(|| job.reference())
            })
            .collect();
        let successes = self.jobs.iter().filter(|job| job.ended == Some("Complete"));
        let last = successes.filter_map(|job| job.completed_at).max();
        CronJobStatus {
            active: (!active.is_empty()).then_some(active),
            last_successful_time: before.last_successful_time.map(|time| time.0).max(last).map(Time),
            last_schedule_time: before.last_schedule_time,
        }
    }

    /// Said once of every Job that was active and is over.
    fn just_ended(&self) -> Vec<Note> {
        let known = self.before().active.unwrap_or_default();
        let was_active = |job: &&Made| known.iter().any(|one| one.uid.as_deref() == Some(job.object.uid()));
        let ended = self.jobs.iter().filter(was_active).filter_map(|job| {
            let message = format!("Saw completed job: {}, condition: {}", job.object.name(), job.ended?);
            Some(Note::normal("SawCompletedJob", message).once(job.object.uid()))
        });
        ended.collect()
    }

    /// Deletes the oldest finished Jobs beyond what is to be kept.
    fn forget(&self, spec: &CronJobSpec) -> Plan<CronJobStatus> {
        let mut plan = Plan::rest();
        for (ended, limit, default) in [
            ("Complete", spec.successful_jobs_history_limit, KEPT_SUCCESSFUL),
            ("Failed", spec.failed_jobs_history_limit, KEPT_FAILED),
        ] {
            let over = |job: &&Made| job.ended == Some(ended) && !job.object.is_deleting();
            let mut finished: Vec<&Made> = self.jobs.iter().filter(over).collect();
            finished.sort_by_key(|job| scheduled_at(&job.object));
            let keep = usize::try_from(limit.unwrap_or(default)).unwrap_or_default();
            let surplus = finished.len().saturating_sub(keep);
            for job in finished.into_iter().take(surplus) {
                let note = Note::normal("SuccessfulDelete", format!("Deleted job {}", job.object.name()));
                plan = plan.then(job.delete()).note(note.once(job.object.uid()));
            }
        }
        plan
    }

    /// The last time that has come, was not used yet and is not too long ago.
    fn due(&self, spec: &CronJobSpec, schedule: &Schedule) -> Option<Timestamp> {
        let now = self.cx.now;
        let used = self.before().last_schedule_time.map(|time| time.0);
        let created = self.cx.object.created_at();
        let mut since = used.or(created)?;
        if let Some(seconds) = spec.starting_deadline_seconds {
            let patience = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            since = since.max(now.checked_sub(patience).unwrap_or(since));
        }
        let times = |since: Timestamp| {
            std::iter::successors(schedule.after(since), |&time| schedule.after(time))
                .take_while(|&time| time <= now)
        };
        if times(since).nth(MAX_MISSED).is_some() {
            since = now.checked_sub(LAST_DAY).unwrap_or(since);
        }
        times(since).last()
    }

    fn start(
        &self,
        mut plan: Plan<CronJobStatus>,
        spec: &CronJobSpec,
        due: Timestamp,
        status: &mut CronJobStatus,
    ) -> Plan<CronJobStatus> {
        let name = format!("{}-{}", self.cx.object.name(), due.as_second() / SECONDS_PER_MINUTE);
        let others: Vec<&Made> = self.active().filter(|job| job.object.name() != name).collect();
        match spec.concurrency_policy.as_deref().unwrap_or("Allow") {
            "Forbid" if !others.is_empty() => {
                let message =
                    "Not starting job because prior execution is running and concurrency policy is Forbid";
                return plan.note(Note::normal("JobAlreadyActive", message).once(name));
            }
            "Replace" => plan = others.iter().fold(plan, |plan, job| plan.then(job.delete())),
            _ => {}
        }
        status.last_schedule_time = Some(Time(due));
        let note = Note::normal("SuccessfulCreate", format!("Created job {name}"));
        plan.then(Step::create_child(self.cx.object, JOB, self.manifest(&name, due))).note(note)
    }

    fn manifest(&self, name: &str, due: Timestamp) -> Value {
        let template = self.cx.object.raw().pointer("/spec/jobTemplate");
        let part = |pointer: &str| template.and_then(|template| template.pointer(pointer)).cloned();
        let mut annotations = part("/metadata/annotations").unwrap_or_else(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(SCHEDULED.to_owned(), due.to_string().into());
        }
        json!({
            "metadata": {
                "name": name,
                "labels": part("/metadata/labels").unwrap_or_else(|| json!({})),
                "annotations": annotations,
            },
            "spec": part("/spec").unwrap_or_default(),
        })
    }
}

/// Jobs of one CronJob in the order of the times they stand for.
fn scheduled_at(job: &Object) -> (Option<Timestamp>, String) {
    let noted = job.annotation(SCHEDULED).and_then(|text| text.parse().ok());
    let created = job.created_at();
    (noted.or(created), job.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::AnyMachine;
    use crate::object::Key;
    use crate::testing::Cluster;
    use crate::view::View as _;

    const MINUTE: Duration = Duration::from_mins(1);

    fn cluster(spec: &str) -> Cluster {
        let yaml = format!(
            "---\nkind: CronJob\nmetadata: {{name: tidy}}\nspec:\n  {}\n  jobTemplate: {{metadata: {{labels: {{a: b}}}}, \
             spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: i}}]}}}}}}}}\n",
            spec.replace("; ", "\n  ")
        );
        Cluster::of(&[CRON_JOB, JOB], &yaml)
    }

    fn step(cluster: &mut Cluster, by: Duration) -> Vec<String> {
        cluster.advance(by);
        cluster.settle(&[AnyMachine::new(CronJobs)]);
        cluster.world.list(&JOB, None).iter().map(|job| job.name().to_owned()).collect()
    }

    fn finish(cluster: &mut Cluster, name: &str, how: &str) {
        let at = cluster.now.to_string();
        let status =
            json!({"status": {"completionTime": at, "conditions": [{"type": how, "status": "True"}]}});
        cluster.edit(&JOB, &Key::new(Some("n"), name), &status);
    }

    fn minute(cluster: &Cluster) -> i64 {
        cluster.now.as_second() / SECONDS_PER_MINUTE
    }

    #[test]
    fn a_time_makes_one_job_named_after_its_minute() {
        let mut cluster = cluster("schedule: '*/5 * * * *'");
        assert_eq!(step(&mut cluster, Duration::from_secs(90)), Vec::<String>::new());
        let jobs = step(&mut cluster, Duration::from_secs(215));
        let name = format!("tidy-{}", minute(&cluster));
        assert_eq!(jobs, std::slice::from_ref(&name));
        let job = cluster.get(&JOB, &Key::new(Some("n"), &name)).unwrap();
        assert_eq!(job["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(job["metadata"]["annotations"][SCHEDULED], "2026-01-01T00:05:00Z");
        assert_eq!(step(&mut cluster, MINUTE), [name]);
        let status = cluster.get(&CRON_JOB, &Key::new(Some("n"), "tidy")).unwrap()["status"].clone();
        assert_eq!(status["lastScheduleTime"], "2026-01-01T00:05:00Z");
        assert_eq!(status["active"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn many_missed_times_make_one_job_and_a_deadline_makes_none() {
        let mut cluster = cluster("schedule: '@hourly'");
        assert_eq!(step(&mut cluster, 600 * 60 * MINUTE).len(), 1);
        let mut strict = self::cluster("schedule: '0 0 * * *'; startingDeadlineSeconds: 60");
        assert_eq!(step(&mut strict, 25 * 60 * MINUTE), Vec::<String>::new());
    }

    #[test]
    fn the_policy_says_what_happens_while_one_runs() {
        for (policy, want) in [("Allow", 2), ("Forbid", 1), ("Replace", 1)] {
            let mut cluster = cluster(&format!("schedule: '* * * * *'; concurrencyPolicy: {policy}"));
            let first = step(&mut cluster, MINUTE);
            let second = step(&mut cluster, MINUTE);
            assert_eq!(second.len(), want, "{policy}");
            assert_eq!(second.contains(&first[0]), policy != "Replace", "{policy}");
        }
    }

    #[test]
    fn suspended_or_unreadable_nothing_starts_and_it_is_said() {
        for (spec, said) in [
            ("schedule: '* * * * *'; suspend: true", None),
            ("schedule: '* * * * *'; timeZone: Mars/Olympus", Some("UnknownTimeZone")),
        ] {
            let mut cluster = cluster(spec);
            assert_eq!(step(&mut cluster, 3 * MINUTE), Vec::<String>::new(), "{spec}");
            let reasons: Vec<&str> = cluster.events.iter().map(|(_, reason, _)| reason.as_str()).collect();
            assert_eq!(reasons.first().copied(), said, "{spec}");
        }
        let mut cluster = cluster("schedule: '* * * * *'");
        let mut unreadable = cluster.get(&CRON_JOB, &Key::new(Some("n"), "tidy")).unwrap();
        unreadable["spec"]["schedule"] = json!("now and then");
        cluster.cache_only(unreadable);
        assert_eq!(step(&mut cluster, 3 * MINUTE), Vec::<String>::new());
        assert_eq!(cluster.events[0].1, "UnparseableSchedule");
    }

    #[test]
    fn finished_jobs_are_kept_as_long_as_told() {
        let mut cluster =
            cluster("schedule: '* * * * *'; successfulJobsHistoryLimit: 1; failedJobsHistoryLimit: 0");
        for how in ["Complete", "Failed", "Complete"] {
            step(&mut cluster, MINUTE);
            let newest = format!("tidy-{}", minute(&cluster));
            finish(&mut cluster, &newest, how);
        }
        let last = format!("tidy-{}", minute(&cluster));
        assert_eq!(step(&mut cluster, Duration::from_secs(1)), [last]);
        let said = cluster.events.iter().filter(|(_, reason, _)| reason == "SawCompletedJob").count();
        assert_eq!(said, 3);
    }
}
