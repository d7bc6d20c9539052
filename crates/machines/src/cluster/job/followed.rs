//! What do those who follow a Job to its end read of it?
//!
//! Not what its Pods are made of, which is most of a Job, and would be kept for each of thousands.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::JobStatus;
use serde::Deserialize;

/// A Job without its Pods' template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Followed {
    pub spec: Option<FollowedSpec>,
    pub status: Option<JobStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowedSpec {
    pub suspend: Option<bool>,
    pub active_deadline_seconds: Option<i64>,
}

impl Followed {
    pub fn is_finished(&self) -> bool {
        self.status.as_ref().is_some_and(is_finished)
    }

    pub fn ended_at(&self) -> Option<Timestamp> {
        ended_at(self.status.as_ref()?)
    }
}

/// Whether a Job is over for good, and all of its Pods with it.
pub fn is_finished(status: &JobStatus) -> bool {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    conditions.iter().any(|one| one.status == "True" && (one.type_ == "Complete" || one.type_ == "Failed"))
}

/// When a Job was over, as it says itself.
pub fn ended_at(status: &JobStatus) -> Option<Timestamp> {
    let failed = status.conditions.iter().flatten().find(|one| one.type_ == "Failed" && one.status == "True");
    let at = status.completion_time.as_ref().or_else(|| failed?.last_transition_time.as_ref());
    at.map(|at| at.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_read_from_any_job_whatever_its_pods_are() {
        let job = json!({"metadata": {"name": "j"}, "spec": {"suspend": true, "template": {"spec": 7}},
            "status": {"conditions": [{"type": "Failed", "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let followed: Followed = serde_json::from_value(job).unwrap();
        let spec = FollowedSpec { suspend: Some(true), active_deadline_seconds: None };
        assert_eq!(followed.spec, Some(spec));
        assert!(followed.is_finished());
        assert_eq!(followed.ended_at().unwrap().to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(serde_json::from_value::<Followed>(json!({"spec": null})).unwrap(), Followed::default());
    }
}
